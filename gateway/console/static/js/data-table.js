// `<data-table>`: the records of a JSON route as a table, read a page at a time as one scrolls.
//
//   src       the route, with a query of its own if it needs one; it takes `limit` and `after`, and answers `next`
//   rows      where the answer has the records
//   label     what the table is called
//   columns   JSON: names, or {"name", "label", "kind", "sorts", "hidden"}; others are found in the records
//   fields    a route whose `fields` say what else there is, as GET /jobs/{id}/fields; read when somebody chooses columns
//   keep      under which name the browser keeps which columns were chosen
//   search    the route takes `q`; the attribute's text is the search field's label
//   formats   the route takes `format`: "jsonl json csv"; `picks`: it takes `fields`
//   total     how many records there are, if that is known
//   order     what it is sorted by until somebody chooses
//   live      there may be more by and by; every so many seconds it looks; "last": once more
//   grows     the order in which more records come last; in another one they come between those that are there, and wait
//             while somebody is at the table
//
// `kind` is how a value is written: ms, bytes, time, code (of HTTP), yes, some (nothing for 0), link or text; then null
// is nothing. Without it, by its type. `sorts` are values
// of the route's `sort`, one for each direction: ["-ms", "ms"]. Chosen columns, `q` and `sort` are in the page's address.
// An element with `data-empty` inside is shown where there is nothing.
import { api, fetched, isAbort, messageOf } from "./api.js";
import { ColumnMenu } from "./column-menu.js";
import { headingOf } from "./data-cells.js";
import { Columns } from "./data-columns.js";
import { Pages } from "./data-pages.js";
import { DataRows } from "./data-rows.js";
import { above, h } from "./dom.js";
import { parse } from "./record.js";
import { Drawer } from "./record-drawer.js";
import { downloads } from "./table-downloads.js";
import { TableQuery } from "./table-query.js";
import { rangeWords } from "./table-words.js";
import { count, shown } from "./text.js";

/**
 * @typedef {import("./data-pages.js").Page} Page
 * @typedef {Record<string, unknown>} Values of one record
 */

const PAGE = 50;
/** A look may take this part of the time: it may read a long record as a whole. */
const LOOKING = 0.1;
/** Milliseconds for which one search goes on by itself, and after which typing is over; seconds between two looks. */
const SEARCH = 30_000;
const TYPING = 350;
const LOOK = 3;
/** @type {Record<string, number>} */
const STEPS = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 };

class DataTable extends HTMLElement {
  #query = new TableQuery(this);
  /** @type {Columns} */
  #columns;
  /** @type {ColumnMenu} */
  #menu;
  /** @type {DataRows} */
  #rows;
  #pages = new Pages(() => ({ records: [], next: null, searched: 0 }));
  #reading = new AbortController();
  /** @type {Promise<void> | null} */
  #coming = null;
  /** @type {number | undefined} */
  #timer;
  #isBuilt = false;
  /** @type {HTMLElement | null} */
  #empty = null;
  #head = h("tr");
  #table = h("table", { class: "table data" });
  #box = h("div", { class: "scroll data-box", role: "region", tabindex: "0" });
  #bar = h("div", { class: "row data-bar" });
  #said = h("p", { class: "muted small", role: "status" });
  #problem = h("div", { class: "problem", role: "alert", hidden: true });
  #earlier = hiddenButton("Earlier records", () => this.#loadEarlier());
  #more = hiddenButton("More records", () => this.#loadMore());
  #news = hiddenButton("Show what is new", () => this.#restart());
  #drawer = new Drawer(
    (by) => this.#neighbour(by),
    (name) => this.#columns.of(name).kind === "time",
  );
  #end = new IntersectionObserver((seen) => seen.at(-1)?.isIntersecting && this.#loadMore(), {
    root: this.#box,
    rootMargin: "400px",
  });
  #isLooking = false;
  #notBefore = 0;
  /** The text of the first page, as it was read last, and whether the table still shows an older one. */
  #top = "";
  #isOld = false;

  constructor() {
    super();
    this.#columns = new Columns(JSON.parse(this.getAttribute("columns") ?? "[]"), this.getAttribute("keep") ?? "");
    this.#menu = new ColumnMenu(this.#columns, (names) => this.#choose(names));
    this.#rows = new DataRows(
      this.#table,
      this.#columns,
      (number) => this.#pages.first(number),
      (index) => this.#open(index),
    );
  }

  connectedCallback() {
    if (this.#isBuilt) return;
    this.#isBuilt = true;
    this.#build();
    this.#restart();
    this.#timer = setInterval(() => this.#look(), 1000 * (Number(this.getAttribute("live")) || LOOK));
  }

  disconnectedCallback() {
    clearInterval(this.#timer);
    this.#reading.abort();
  }

  // --- what it is made of

  #build() {
    const label = this.getAttribute("label") ?? "";
    this.#empty = this.querySelector("[data-empty]");
    this.#box.setAttribute("aria-label", label);
    this.#table.append(h("caption", { class: "visually-hidden" }, label), h("thead", {}, this.#head));
    this.#box.append(this.#earlier, this.#table, h("div", { class: "data-end" }, this.#more));
    const { element: menu } = this.#menu;
    const bar = [this.#searchField(), this.#said, this.#news, menu, this.#downloads()];
    this.#bar.append(...bar.filter((part) => part !== null));
    this.append(this.#bar, this.#problem, this.#box, this.#drawer.element);
    if (this.hasAttribute("fields")) menu.addEventListener("toggle", () => this.#askFields(), { once: true });
    this.#table.addEventListener("keydown", (event) => this.#step(event));
    this.#drawer.element.addEventListener("close", () => this.#rows.button(this.#rows.current)?.focus());
  }

  #searchField() {
    if (!this.#query.isSearched) return null;
    const label = this.getAttribute("search") || "Search";
    const named = { "aria-label": label, placeholder: label, value: this.#query.q };
    const field = h("input", { type: "search", maxlength: "200", ...named });
    /** @type {number | undefined} */
    let typing;
    field.addEventListener("input", () => {
      clearTimeout(typing);
      typing = setTimeout(() => this.#ask("q", field.value.trim()), TYPING);
    });
    return h("div", { class: "data-search" }, field);
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
    this.#drawHead();
    this.#menu.draw();
    this.#rows.draw();
  }

  #drawHead() {
    const numbered = h(
      "th",
      { scope: "col", class: "number" },
      h("span", { class: "visually-hidden" }, "Record"),
      "#",
    );
    const focused = [...this.#head.children].findIndex((heading) => heading.contains(document.activeElement));
    const { sort } = this.#query;
    const headings = this.#columns.chosen.map((name) =>
      headingOf(this.#columns.of(name), sort, (next) => this.#ask("sort", next)),
    );
    this.#head.replaceChildren(numbered, ...headings);
    this.#head.children[focused]?.querySelector("button")?.focus({ preventScroll: true });
  }

  /**
   * Ask for something else; for nothing if it is empty.
   *
   * @type {(name: "q" | "sort", value: string) => void}
   */
  #ask(name, value) {
    if (this.#query[name] === value) return;
    this.#query.note(name, value ? [value] : []);
    this.#drawHead();
    this.#restart();
  }

  // --- reading

  /** @param {Page} [first] what the first page has, where it was read */
  #restart(first) {
    this.#reading.abort();
    this.#reading = new AbortController();
    this.#coming = null;
    const { signal } = this.#reading;
    this.#isOld = false;
    this.#news.hidden = true;
    const known = [first];
    this.#pages = new Pages((after) => (!after && known.pop()) || this.#read(after, signal));
    // a page that gets shorter for a moment would jump
    if (!this.#rows.isEmpty) this.#box.style.minHeight = `${this.#box.offsetHeight}px`;
    this.#rows.clear();
    this.#draw();
    this.#loadMore();
  }

  /** Reads another part as a table of its own: `src` was changed. */
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
    const records = told[this.getAttribute("rows") ?? ""] ?? [];
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
    const height = this.#box.scrollHeight;
    await this.#show(this.#rows.first - 1, () => {
      this.#box.scrollTop += this.#box.scrollHeight - height;
      if (this.#rows.isFull) this.#drop(this.#rows.last);
    });
  }

  /**
   * One page at a time: whoever asks meanwhile waits for the page that is on its way.
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
      this.#problem.hidden = true;
      if (records && (records.length || !number)) this.#put(number, records);
      then();
      if (records?.length) this.#watchEnd();
    } catch (error) {
      if (pages === this.#pages && !isAbort(error)) this.#tell(error);
    } finally {
      if (pages === this.#pages) {
        this.#coming = null;
        this.#box.style.minHeight = "";
        this.#sayWhatThereIs();
      }
    }
  }

  /** Read on when the end comes near, also if it is near already. */
  #watchEnd() {
    this.#end.disconnect();
    this.#end.observe(this.#more);
  }

  /**
   * A search goes on for a while as long as it has found nothing.
   *
   * @type {(pages: Pages, number: number) => Promise<Values[] | null>}
   */
  async #loaded(pages, number) {
    const until = performance.now() + SEARCH;
    this.#more.hidden = true;
    for (;;) {
      const records = await pages.load(number);
      if (records || pages !== this.#pages || performance.now() > until) return records;
      this.#said.textContent = `Looked at ${count(pages.searched)}…`;
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
    const { scrollTop } = this.#box;
    const hadFocus = this.#table.contains(document.activeElement);
    const height = this.#rows.drop(number);
    if (hadFocus && !this.#table.contains(document.activeElement)) this.#box.focus();
    if (isAbove) this.#box.scrollTop = scrollTop - height;
  }

  /** Once in a while, if there may be more. */
  async #look() {
    const isBusy = this.#coming !== null || this.#isLooking || performance.now() < this.#notBefore;
    if (!this.hasAttribute("live") || document.hidden || isBusy) return;
    const { sort } = this.#query;
    const began = performance.now();
    this.#isLooking = true;
    const look = sort && sort !== this.getAttribute("grows") ? this.#lookBetween() : this.#lookBehind();
    const isRead = await look.catch(() => false);
    this.#isLooking = false;
    this.#notBefore = performance.now() + (performance.now() - began) / LOOKING;
    if (isRead && this.getAttribute("live") === "last") this.removeAttribute("live");
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

  /** Read the first page again. Where it has changed the table is made anew, but not under the hands of somebody. */
  async #lookBetween() {
    const pages = this.#pages;
    const before = this.#top;
    const first = await this.#read(undefined, this.#reading.signal);
    if (pages !== this.#pages) return false;
    this.#isOld ||= before !== this.#top;
    if (this.#isOld && this.#isUsed) this.#news.hidden = false;
    else if (this.#isOld) this.#restart(first);
    return true;
  }

  get #isUsed() {
    const isIn = this.#box.matches(":hover") || this.#box.contains(document.activeElement) || this.#box.scrollTop > 0;
    const marked = getSelection();
    const isMarked = marked !== null && !marked.isCollapsed && this.#box.contains(marked.anchorNode);
    return isIn || this.#drawer.element.open || isMarked;
  }

  // --- what is said of it

  #sayWhatThereIs() {
    const number = this.#rows.last;
    const first = this.#pages.first(this.#rows.first);
    const last = this.#pages.first(number) + this.#rows.recordsOf(number).length;
    const isAll = !this.#pages.has(number + 1);
    const { q } = this.#query;
    this.#earlier.hidden = !first;
    this.#more.hidden = isAll;
    this.#more.textContent = q ? "Look further" : "More records";
    this.#box.hidden = !last && isAll;
    if (this.#empty) this.#empty.hidden = Boolean(last) || !isAll || Boolean(q);
    this.#bar.hidden = this.#empty !== null && !this.#empty.hidden;
    const searched = q ? this.#pages.searched : undefined;
    this.#said.textContent = rangeWords({ first, last, isAll, searched }, this.getAttribute("total"));
    this.#table.setAttribute("aria-rowcount", String(isAll ? last + 1 : -1));
  }

  /** @param {unknown} error */
  #tell(error) {
    const again = h(
      "button",
      { class: "button small", type: "button", onclick: () => this.#loadMore() },
      "Try again",
    );
    this.#problem.replaceChildren(h("p", {}, shown(messageOf(error), 500)), h("p", {}, again));
    this.#problem.hidden = false;
  }

  // --- rows

  /** @param {number} index of a record */
  #open(index) {
    const record = this.#rows.recordAt(index);
    if (!record) return;
    this.#rows.setCurrent(index);
    this.#drawer.open(`Record ${count(index + 1)}`, record);
  }

  /**
   * The record that comes after the present one, or before it.
   *
   * @param {number} by
   * @returns {Promise<[title: string, record: Values] | null>}
   */
  async #neighbour(by) {
    const index = this.#rows.current + by;
    if (!this.#rows.recordAt(index)) await this.#loadTowards(by);
    const record = this.#rows.recordAt(index);
    if (!record) return null;
    this.#rows.setCurrent(index);
    return [`Record ${count(index + 1)}`, record];
  }

  /** @param {number} by */
  async #loadTowards(by) {
    if (by > 0) await this.#loadMore();
    else if (this.#rows.first > 0) await this.#loadEarlier();
  }

  /**
   * Arrow keys go from row to row. The Tab key reaches only what is in the present row, so it soon leads out again.
   *
   * @param {KeyboardEvent} event
   */
  async #step(event) {
    const by = STEPS[event.key];
    if (!by || !above(event, "[data-place]")) return;
    event.preventDefault();
    const wanted = Math.max(0, this.#rows.current + by);
    if (!this.#rows.button(wanted)) await this.#loadTowards(by);
    const button = this.#rows.button(wanted);
    if (!button) return;
    this.#rows.setCurrent(wanted);
    button.focus();
  }
}

/** @type {(words: string, act: () => void) => HTMLElement} */
function hiddenButton(words, act) {
  return h("button", { class: "button small", type: "button", hidden: true, onclick: act }, words);
}

customElements.define("data-table", DataTable);
