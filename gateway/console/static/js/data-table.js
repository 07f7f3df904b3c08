// `<data-table>`: the records of a JSON route as a table, read a page at a time while the user scrolls.
//
//   src       the route, with a query of its own if it needs one; it takes `limit` and `after`, and answers `next`
//   rows      the field of the answer that has the records
//   within    the field of a record that has the values to show, if there are other values beside it
//   label     the name of the table
//   columns   JSON: names, or {"name", "label", "kind", "sorts", "hidden"}; further columns are found in the records
//   fields    a route whose `fields` name further columns, as GET /jobs/{id}/fields; read when somebody chooses columns
//   keep      the name under which the browser keeps the chosen columns
//   search    the route takes `q`; the attribute's text is the search field's label
//   formats   the route takes `format`: "jsonl csv xlsx"; `picks`: it takes `fields`
//   total     how many records there are, if that is known
//   order     the value of `sort` until somebody chooses another one
//   live      new records may come: it looks for them every so many seconds; "last": once more
//   grows     the order in which new records come last; in another order they belong between the records that are
//             there, and are not shown while somebody uses the table
//
// `kind` is how a value is written: ms, bytes, time, code (of HTTP), yes, some (nothing for 0), link or text; then null
// is written as nothing. Without a `kind` the value's type decides. `sorts` are values of the route's `sort`, one for
// each direction: ["-ms", "ms"]. Chosen columns, `q` and `sort` are in the page's address. An element with `data-empty`
// inside is shown if there are no records.
import { api, fetched, isAbort } from "./api.js";
import { ColumnMenu } from "./column-menu.js";
import { Columns } from "./data-columns.js";
import { Pages } from "./data-pages.js";
import { DataRows } from "./data-rows.js";
import { parse } from "./record.js";
import { RecordSteps } from "./record-steps.js";
import { searchField } from "./search-field.js";
import { downloads } from "./table-downloads.js";
import { TableFrame } from "./table-frame.js";
import { isUsed, TableLook } from "./table-look.js";
import { TableQuery } from "./table-query.js";
import { count } from "./text.js";

/**
 * @typedef {import("./data-pages.js").Page} Page
 * @typedef {Record<string, unknown>} Values of one record
 */

const PAGE = 50;
/** Milliseconds for which one search goes on by itself. */
const SEARCH = 30_000;

class DataTable extends HTMLElement {
  #query = new TableQuery(this);
  /** @type {Columns} */
  #columns;
  /** @type {ColumnMenu} */
  #menu;
  /** @type {DataRows} */
  #rows;
  /** @type {RecordSteps} */
  #steps;
  #pages = new Pages(() => ({ records: [], next: null, searched: 0 }));
  #reading = new AbortController();
  /** @type {Promise<void> | null} */
  #coming = null;
  #live = new TableLook(this, () => this.#look());
  #isBuilt = false;
  /** @type {HTMLElement | null} */
  #empty = null;
  #frame = new TableFrame({
    onEarlier: () => this.#loadEarlier(),
    onMore: () => this.#loadMore(),
    onNews: () => this.#restart(),
    onSort: (sort) => this.#ask("sort", sort),
  });
  #end = new IntersectionObserver((seen) => seen.at(-1)?.isIntersecting && this.#loadMore(), {
    root: this.#frame.box,
    rootMargin: "400px",
  });
  /** The text of the first page, as it was read last, and whether the table still shows an older one. */
  #top = "";
  #isOld = false;

  constructor() {
    super();
    this.#columns = new Columns(JSON.parse(this.getAttribute("columns") ?? "[]"), this.getAttribute("keep") ?? "");
    this.#menu = new ColumnMenu(this.#columns, (names) => this.#choose(names));
    this.#rows = new DataRows(
      this.#frame.table,
      this.#columns,
      (number) => this.#pages.first(number),
      (index) => this.#steps.open(index),
    );
    const isTime = (/** @type {string} */ name) => this.#columns.of(name).kind === "time";
    this.#steps = new RecordSteps(this.#rows, (by) => this.#loadTowards(by), isTime);
  }

  connectedCallback() {
    if (this.#isBuilt) return;
    this.#isBuilt = true;
    this.#build();
    this.#restart();
    this.#live.begin();
  }

  disconnectedCallback() {
    this.#live.end();
    this.#reading.abort();
  }

  // --- what it is made of

  #build() {
    this.#empty = this.querySelector("[data-empty]");
    const { element: menu } = this.#menu;
    const label = this.getAttribute("label") ?? "";
    this.append(...this.#frame.built(label, [this.#searchField()], [menu, this.#downloads()]));
    this.append(this.#steps.drawer.element);
    if (this.hasAttribute("fields")) menu.addEventListener("toggle", () => this.#askFields(), { once: true });
    this.#frame.table.addEventListener("keydown", (event) => this.#steps.step(event));
  }

  #searchField() {
    if (!this.#query.isSearched) return null;
    return searchField(this.getAttribute("search") || "Search", this.#query.q, (text) => this.#ask("q", text));
  }

  async #askFields() {
    /** @type {{ fields: { name: string, path: string[] }[] }} */
    const { fields } = await api(`GET ${this.getAttribute("fields")}`);
    for (const { name, path } of fields)
      if (!this.#columns.isKnown(name)) this.#columns.know({ name, hidden: path.length > 1 });
    this.#menu.draw();
  }

  #downloads() {
    const formats = (this.getAttribute("formats") ?? "").split(" ").filter(Boolean);
    if (!formats.length) return null;
    const address = (/** @type {import("./api.js").Query} */ query) => this.#query.address(query);
    return downloads(formats, address, () => ({
      ...this.#query.asShown,
      // the route separates names by commas
      ...(this.hasAttribute("picks") && {
        fields: this.#columns.chosen.filter((name) => !name.includes(",")).join(","),
      }),
    }));
  }

  // --- columns

  /** @param {string[] | undefined} names */
  #choose(names) {
    this.#columns.choose(names);
    this.#query.note("column", names ?? []);
    this.#draw();
  }

  #draw() {
    this.#frame.drawHead(this.#columns, this.#query.sort);
    this.#menu.draw();
    this.#rows.draw();
  }

  /**
   * Search for another text, or sort in another way; an empty `value` ends that.
   *
   * @type {(name: "q" | "sort", value: string) => void}
   */
  #ask(name, value) {
    if (this.#query[name] === value) return;
    this.#query.note(name, value ? [value] : []);
    this.#frame.drawHead(this.#columns, this.#query.sort);
    this.#restart();
  }

  // --- reading

  /** @param {Page} [first] the first page, if it was read already */
  #restart(first) {
    this.#reading.abort();
    this.#reading = new AbortController();
    this.#coming = null;
    const { signal } = this.#reading;
    this.#isOld = false;
    this.#frame.news.hidden = true;
    const known = [first];
    this.#pages = new Pages((after) => (!after && known.pop()) || this.#read(after, signal));
    // keep the height, because the browser would scroll if the page got shorter for a moment
    if (!this.#rows.isEmpty) this.#frame.box.style.minHeight = `${this.#frame.box.offsetHeight}px`;
    this.#rows.clear();
    this.#draw();
    this.#loadMore();
  }

  /** Read the records anew, after `src` was changed. */
  refresh() {
    this.#restart();
  }

  /** @type {(after: string | undefined, signal: AbortSignal) => Promise<Page>} */
  async #read(after, signal) {
    const query = { limit: PAGE, after, ...this.#query.asShown };
    const answer = await fetched(`GET ${this.#query.address(query)}`, { signal });
    const text = await answer.text();
    if (!after) this.#top = text;
    /** @type {{ next: string | null } & Record<string, Values[]>} */
    const told = parse(text);
    const found = told[this.getAttribute("rows") ?? ""] ?? [];
    const within = this.getAttribute("within");
    const records = within ? found.map((record) => /** @type {Values} */ (record[within])) : found;
    return { records, next: told.next, searched: Number(answer.headers.get("X-Searched") ?? 0) };
  }

  async #loadMore() {
    const number = this.#rows.last + 1;
    if (!this.#pages.has(number)) return;
    await this.#show(number, () => {
      if (this.#rows.isFull) this.#drop(this.#rows.first);
    });
  }

  async #loadEarlier() {
    const height = this.#frame.box.scrollHeight;
    await this.#show(this.#rows.first - 1, () => {
      this.#frame.box.scrollTop += this.#frame.box.scrollHeight - height;
      if (this.#rows.isFull) this.#drop(this.#rows.last);
    });
  }

  /**
   * Show a page. If another one is just being read, wait for that one instead.
   *
   * @type {(number: number, then: () => void) => Promise<void>}
   */
  #show(number, then) {
    this.#coming ??= this.#readPage(number, then);
    return this.#coming;
  }

  /** @type {(number: number, then: () => void) => Promise<void>} */
  async #readPage(number, then) {
    const pages = this.#pages;
    try {
      const records = await this.#loaded(pages, number);
      if (pages !== this.#pages) return;
      this.#frame.problem.hidden = true;
      if (records && (records.length || !number)) this.#put(number, records);
      then();
      if (records?.length) this.#watchEnd();
    } catch (error) {
      if (pages === this.#pages && !isAbort(error)) this.#frame.tellProblem(error);
    } finally {
      if (pages === this.#pages) {
        this.#coming = null;
        this.#frame.box.style.minHeight = "";
        this.#sayWhatThereIs();
      }
    }
  }

  /** Read the next page when the end of the table comes near, or at once if it is near already. */
  #watchEnd() {
    this.#end.disconnect();
    this.#end.observe(this.#frame.more);
  }

  /**
   * The records of a page. A search that has found nothing goes on for a while.
   *
   * @type {(pages: Pages, number: number) => Promise<Values[] | null>}
   */
  async #loaded(pages, number) {
    const until = performance.now() + SEARCH;
    this.#frame.more.hidden = true;
    for (;;) {
      const records = await pages.load(number);
      if (records || pages !== this.#pages || performance.now() > until) return records;
      this.#frame.say(`Searched ${count(pages.searched)}…`);
    }
  }

  /** @type {(number: number, records: Values[]) => void} */
  #put(number, records) {
    if (this.#columns.discover(records)) this.#draw();
    this.#rows.put(number, records);
  }

  /** @param {number} number */
  #drop(number) {
    const isAbove = number === this.#rows.first;
    const { scrollTop } = this.#frame.box;
    const hadFocus = this.#frame.table.contains(document.activeElement);
    const height = this.#rows.drop(number);
    if (hadFocus && !this.#frame.table.contains(document.activeElement)) this.#frame.box.focus();
    if (isAbove) this.#frame.box.scrollTop = scrollTop - height;
  }

  /** See whether there is more. */
  async #look() {
    if (this.#coming) return false;
    const { sort } = this.#query;
    return sort && sort !== this.getAttribute("grows") ? await this.#lookBetween() : await this.#lookBehind();
  }

  /** Read the last page again. Rows that are there stay as they are. */
  async #lookBehind() {
    const number = this.#rows.last;
    if (number < 0 || this.#pages.has(number + 1)) return true;
    const pages = this.#pages;
    const known = this.#rows.recordsOf(number).length;
    const added = (await pages.load(number))?.slice(known) ?? [];
    if (pages !== this.#pages || !added.length) return true;
    this.#rows.append(number, added);
    if (this.#columns.discover(added)) this.#draw();
    this.#sayWhatThereIs();
    return true;
  }

  /** Read the first page again. If it has changed, the table is made anew, but not while somebody uses it. */
  async #lookBetween() {
    const pages = this.#pages;
    const before = this.#top;
    const first = await this.#read(undefined, this.#reading.signal);
    if (pages !== this.#pages) return false;
    this.#isOld ||= before !== this.#top;
    if (this.#isOld && (this.#steps.drawer.element.open || isUsed(this.#frame.box))) this.#frame.news.hidden = false;
    else if (this.#isOld) this.#restart(first);
    return true;
  }

  // --- the line above the table

  #sayWhatThereIs() {
    const number = this.#rows.last;
    const first = this.#pages.first(this.#rows.first);
    const last = this.#pages.first(number) + this.#rows.recordsOf(number).length;
    const isAll = !this.#pages.has(number + 1);
    const searched = this.#query.q ? this.#pages.searched : undefined;
    this.#frame.tellRange({ first, last, isAll, searched }, this.getAttribute("total"), this.#empty);
  }

  /** @param {number} by */
  async #loadTowards(by) {
    if (by > 0) await this.#loadMore();
    else if (this.#rows.first > 0) await this.#loadEarlier();
  }
}

customElements.define("data-table", DataTable);
