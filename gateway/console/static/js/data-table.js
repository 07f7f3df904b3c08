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
import { address, api, fetched, own } from "./api.js";
import { cell, Drawer, isNumber, parse, valueAt } from "./record.js";
import { count, h, icon, shown, size } from "./text.js";
import { time } from "./times.js";

const PAGE = 50;
/** Pages that are in the document; those that one has scrolled away from are read again when one comes back. */
const WINDOW = 12;
/** Columns that are shown at first, and that are known at all. */
const FIRST_COLUMNS = 8;
const MOST_COLUMNS = 300;
/** A look may take this part of the time: it may read a long record as a whole. */
const LOOKING = 0.1;
/** Milliseconds for which one search goes on by itself, and after which typing is over; seconds between two looks. */
const SEARCH = 30_000;
const TYPING = 350;
const LOOK = 3;

const KINDS = {
  ms: (value) => `${count(value)} ms`,
  bytes: (value) => size(value),
  time: (value) => time(value),
  code: (value) => h("span", { class: value >= 400 ? "bad" : null }, String(value)),
  yes: (value) => (value ? "yes" : ""),
  some: (value) => (value ? count(value) : ""),
  link: (value) => cell(value),
  text: (value) => cell(value),
};
const NUMBERS = new Set(["ms", "bytes", "code", "some"]);

/** The records of a route, a page at a time. The cursors of all pages that were read are kept, so one can go back. */
class Pages {
  #cursors = [undefined];
  /** How many records are before each page. */
  #firsts = [0];
  /** How many records the pages that were asked for have looked through, where the route searches. */
  searched = 0;

  constructor(read) {
    this.read = read;
  }

  /** Whether there is a page of this number, as far as is known. */
  has(number) {
    return number in this.#cursors;
  }

  first(number) {
    return this.#firsts[number];
  }

  /** The records of a page. A search's page may have none, and still be followed by others: then it is read on. */
  async load(number) {
    const answer = await this.read(this.#cursors[number]);
    if (!this.has(number + 1)) this.searched += answer.searched;
    if (!answer.records.length && answer.next) {
      this.#cursors[number] = answer.next;
      return null;
    }
    // a search that was not at its end has found nothing more
    if (!answer.records.length && number) delete this.#cursors[number];
    if (answer.next) {
      this.#cursors[number + 1] = answer.next;
      this.#firsts[number + 1] = this.#firsts[number] + answer.records.length;
    }
    return answer.records;
  }
}

class DataTable extends HTMLElement {
  #columns = new Map();
  #chosen;
  #pages;
  /** What is in the document, by the number of its page: `{ body, records }`. */
  #window = new Map();
  #reading = new AbortController();
  #coming = null;
  #current = 0;

  connectedCallback() {
    if (this.#pages) return;
    for (const column of JSON.parse(this.getAttribute("columns") ?? "[]")) this.#know(column);
    this.#chosen = this.#chosenBefore();
    this.#build();
    this.#restart();
    this.#timer = setInterval(() => this.#look(), 1000 * (Number(this.getAttribute("live")) || LOOK));
  }

  disconnectedCallback() {
    clearInterval(this.#timer);
    this.#reading.abort();
  }

  #timer;

  // --- what it is made of

  #build() {
    this.#empty = this.querySelector("[data-empty]");
    this.#head = h("tr");
    this.#table = h(
      "table",
      { class: "table data" },
      h("caption", { class: "visually-hidden" }, this.getAttribute("label")),
      h("thead", {}, this.#head),
    );
    this.#earlier = this.#button("Earlier records", () => this.#loadEarlier());
    this.#more = this.#button("More records", () => this.#loadMore());
    this.#problem = h("div", { class: "problem", role: "alert", hidden: true });
    const attributes = {
      class: "scroll data-box",
      role: "region",
      "aria-label": this.getAttribute("label"),
      tabindex: "0",
    };
    this.#box = h("div", attributes, this.#earlier, this.#table, h("div", { class: "data-end" }, this.#more));
    this.#said = h("p", { class: "muted small", role: "status" });
    this.#drawer = new Drawer(
      (by) => this.#neighbour(by),
      (name) => this.#columns.get(name)?.kind === "time",
    );
    this.#news = this.#button("Show what is new", () => this.#restart());
    this.#bar = h(
      "div",
      { class: "row data-bar" },
      this.#searchField(),
      this.#said,
      this.#news,
      this.#columnMenu(),
      this.#downloads(),
    );
    this.append(this.#bar, this.#problem, this.#box, this.#drawer.element);
    this.#table.addEventListener("keydown", (event) => this.#step(event));
    this.#drawer.element.addEventListener("close", () => this.#rowButton(this.#current)?.focus());
    const options = { root: this.#box, rootMargin: "400px" };
    this.#end = new IntersectionObserver((seen) => seen.at(-1).isIntersecting && this.#loadMore(), options);
  }

  /** Read on when the end comes near, also if it is near already. */
  #watchEnd() {
    this.#end.disconnect();
    this.#end.observe(this.#more);
  }

  #empty;
  #head;
  #table;
  #earlier;
  #more;
  #problem;
  #box;
  #said;
  #drawer;
  #bar;
  #end;
  #news;

  #button(words, act) {
    return h("button", { class: "button small", type: "button", hidden: true, onclick: act }, words);
  }

  #searchField() {
    if (!this.hasAttribute("search")) return null;
    const label = this.getAttribute("search") || "Search";
    const field = h("input", {
      type: "search",
      "aria-label": label,
      placeholder: label,
      maxlength: "200",
      value: this.#asked("q"),
    });
    let typing;
    field.addEventListener("input", () => {
      clearTimeout(typing);
      typing = setTimeout(() => this.#ask("q", field.value.trim()), TYPING);
    });
    return h("div", { class: "data-search" }, field);
  }

  #columnMenu() {
    this.#list = h("div", { class: "data-columns" });
    const all = this.#plainButton("All", () => this.#choose([...this.#columns.keys()]));
    const usual = this.#plainButton("Usual", () => this.#choose(undefined));
    const panel = h(
      "fieldset",
      { class: "panel" },
      h("legend", {}, "Columns"),
      h("div", { class: "row" }, all, usual),
      this.#list,
    );
    const menu = dropdown("filter", "Columns", panel);
    if (this.hasAttribute("fields")) menu.addEventListener("toggle", () => this.#askFields(), { once: true });
    return menu;
  }

  async #askFields() {
    const { fields } = await api(`GET ${this.getAttribute("fields")}`);
    for (const { name, path } of fields) if (!this.#columns.has(name)) this.#know({ name, hidden: path.length > 1 });
    this.#drawMenu();
  }

  #list;

  #plainButton(words, act) {
    return h("button", { class: "button small", type: "button", onclick: act }, words);
  }

  #downloads() {
    const formats = (this.getAttribute("formats") ?? "").split(" ").filter(Boolean);
    if (!formats.length) return null;
    const panel = h("div", { class: "panel" });
    const menu = dropdown("download", "Download", panel);
    menu.addEventListener("toggle", () => {
      const asShown = { q: this.#asked("q") || undefined, sort: this.#asked("sort") || undefined };
      // the route separates names by commas
      if (this.hasAttribute("picks")) asShown.fields = this.#chosen.filter((name) => !name.includes(",")).join(",");
      const links = (words, query) => [
        h("p", { class: "muted small" }, words),
        ...formats.map((format) =>
          h("a", { href: this.#address({ ...query, format }), download: true }, format.toUpperCase()),
        ),
      ];
      panel.replaceChildren(...links("All", {}), ...links("As shown", asShown));
    });
    return menu;
  }

  // --- columns

  #know(column) {
    const known = typeof column === "string" ? { name: column } : column;
    if (this.#columns.size < MOST_COLUMNS) this.#columns.set(known.name, { label: known.name, sorts: [], ...known });
  }

  #chosenBefore() {
    const asked = new URLSearchParams(location.search).getAll("column");
    if (asked.length) return asked;
    try {
      return JSON.parse(localStorage.getItem(this.#place) ?? "null") ?? this.#usual();
    } catch {
      return this.#usual();
    }
  }

  get #place() {
    return own(`columns:${this.getAttribute("keep")}`);
  }

  #usual() {
    return [...this.#columns.values()]
      .filter((column) => !column.hidden)
      .slice(0, FIRST_COLUMNS)
      .map((column) => column.name);
  }

  /** Choose columns by their names; the usual ones if there are none. */
  #choose(names) {
    this.#chosen = names ?? this.#usual();
    try {
      if (names) localStorage.setItem(this.#place, JSON.stringify(names));
      else localStorage.removeItem(this.#place);
    } catch {
      // it holds for this page then
    }
    this.#note("column", names ?? []);
    this.#draw();
  }

  #discover(records) {
    const before = this.#columns.size;
    const usual = this.#usual().join("\n") === this.#chosen.join("\n");
    let hasChanged = false;
    for (const [name, value] of records.flatMap((record) => Object.entries(record))) {
      if (!this.#columns.has(name)) this.#know(name);
      const column = this.#columns.get(name);
      if (column && !column.hasNumbers && isNumber(value)) hasChanged = column.hasNumbers = true;
    }
    if (this.#columns.size === before && !hasChanged) return;
    if (usual) this.#chosen = this.#usual();
    this.#draw();
  }

  #draw() {
    this.#drawHead();
    this.#drawMenu();
    for (const [number, { records }] of this.#window) this.#fill(number, records);
  }

  #drawHead() {
    const numbered = h(
      "th",
      { scope: "col", class: "number" },
      h("span", { class: "visually-hidden" }, "Record"),
      "#",
    );
    const focused = [...this.#head.children].findIndex((heading) => heading.contains(document.activeElement));
    this.#head.replaceChildren(
      numbered,
      ...this.#chosen.map((name) => this.#heading(this.#columns.get(name) ?? { label: name, sorts: [] })),
    );
    this.#head.children[focused]?.querySelector("button")?.focus({ preventScroll: true });
  }

  #heading({ label, sorts, kind, hasNumbers }) {
    const words = h("bdi", {}, shown(label, 60));
    const attributes = { scope: "col", class: NUMBERS.has(kind) || (!kind && hasNumbers) ? "number" : null };
    if (!sorts.length) return h("th", attributes, words);
    const place = sorts.indexOf(this.#asked("sort"));
    const direction = place < 0 ? null : sorts[place].startsWith("-") ? "descending" : "ascending";
    const arrow = direction && icon(direction === "descending" ? "down-arrow" : "up-arrow");
    const next = sorts[place + 1] ?? (place > 0 || sorts.length === 1 ? "" : sorts[0]);
    const sort = h("button", { class: "sort", type: "button", onclick: () => this.#ask("sort", next) }, words, arrow);
    return h("th", { ...attributes, "aria-sort": direction ?? "none" }, sort);
  }

  #drawMenu() {
    const chosen = new Set(this.#chosen);
    const names = inOrder([...new Set([...this.#columns.keys(), ...this.#chosen])]);
    const focused = this.#list.contains(document.activeElement) ? document.activeElement.value : null;
    this.#list.replaceChildren(...names.map((name) => this.#tick(name, chosen.has(name))));
    if (focused !== null) [...this.#list.querySelectorAll("input")].find((box) => box.value === focused)?.focus();
  }

  #tick(name, isChosen) {
    const box = h("input", { type: "checkbox", value: name, checked: isChosen });
    box.addEventListener("change", () => {
      const left = this.#chosen.filter((one) => one !== name);
      this.#choose(box.checked ? [...left, name] : left);
    });
    return h("label", { class: "data-column" }, box, h("bdi", {}, shown(this.#columns.get(name)?.label ?? name, 60)));
  }

  // --- what is asked for: it is in the address, so that a link leads to the same

  #asked(name) {
    return (
      new URLSearchParams(location.search).get(name) ?? (name === "sort" ? this.getAttribute("order") : null) ?? ""
    );
  }

  #note(name, values) {
    const page = new URL(location);
    page.searchParams.delete(name);
    for (const value of values) page.searchParams.append(name, value);
    history.replaceState(history.state, "", page);
  }

  #ask(name, value) {
    if (this.#asked(name) === value) return;
    this.#note(name, value ? [value] : []);
    this.#drawHead();
    this.#restart();
  }

  #address(query) {
    const [path, own] = this.getAttribute("src").split("?");
    const given = new URLSearchParams(own);
    return address(path, {
      ...Object.fromEntries([...given.keys()].map((name) => [name, given.getAll(name)])),
      ...query,
    });
  }

  // --- reading

  /** `first` is what the first page has, where it was read. */
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
    if (this.#window.size) this.#box.style.minHeight = `${this.#box.offsetHeight}px`;
    for (const { body } of this.#window.values()) body.remove();
    this.#window.clear();
    this.#current = 0;
    this.#draw();
    this.#loadMore();
  }

  /** Reads another part as a table of its own: `src` was changed. */
  refresh() {
    this.#restart();
  }

  async #read(after, signal) {
    const query = { limit: PAGE, after, q: this.#asked("q") || undefined, sort: this.#asked("sort") || undefined };
    if (!this.hasAttribute("search")) delete query.q;
    const answer = await fetched(`GET ${this.#address(query)}`, { signal });
    const text = await answer.text();
    if (!after) this.#top = text;
    const told = parse(text);
    return {
      records: told[this.getAttribute("rows")],
      next: told.next,
      searched: Number(answer.headers.get("X-Searched") ?? 0),
    };
  }

  get #last() {
    return Math.max(-1, ...this.#window.keys());
  }

  get #first() {
    return Math.min(...this.#window.keys());
  }

  async #loadMore() {
    const number = this.#last + 1;
    if (!this.#pages.has(number)) return;
    await this.#show(number, () => {
      if (this.#window.size > WINDOW) this.#drop(this.#first);
    });
  }

  async #loadEarlier() {
    const height = this.#box.scrollHeight;
    await this.#show(this.#first - 1, () => {
      this.#box.scrollTop += this.#box.scrollHeight - height;
      if (this.#window.size > WINDOW) this.#drop(this.#last);
    });
  }

  /** One page at a time: whoever asks meanwhile waits for the page that is on its way. */
  #show(number, then) {
    this.#coming ??= this.#readPage(number, then);
    return this.#coming;
  }

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
      if (pages === this.#pages && error.name !== "AbortError") this.#tell(error);
    } finally {
      if (pages === this.#pages) {
        this.#coming = null;
        this.#box.style.minHeight = "";
        this.#sayWhatThereIs();
      }
    }
  }

  /** A search goes on for a while as long as it has found nothing. */
  async #loaded(pages, number) {
    const until = performance.now() + SEARCH;
    this.#more.hidden = true;
    for (;;) {
      const records = await pages.load(number);
      if (records || pages !== this.#pages || performance.now() > until) return records;
      this.#said.textContent = `Looked at ${count(pages.searched)}…`;
    }
  }

  #put(number, records) {
    const body = h("tbody");
    this.#discover(records);
    this.#window.set(number, { body, records });
    this.#fill(number, records);
    const next = this.#window.get(number + 1);
    if (next) next.body.before(body);
    else this.#table.append(body);
  }

  #drop(number) {
    const { body } = this.#window.get(number);
    const isAbove = number === this.#first;
    const { scrollTop } = this.#box;
    const { offsetHeight } = body;
    if (body.contains(document.activeElement)) this.#box.focus();
    body.remove();
    this.#window.delete(number);
    if (isAbove) this.#box.scrollTop = scrollTop - offsetHeight;
  }

  /** Once in a while, if there may be more. */
  async #look() {
    if (
      !this.hasAttribute("live") ||
      document.hidden ||
      this.#coming ||
      this.#isLooking ||
      performance.now() < this.#notBefore
    )
      return;
    const sort = this.#asked("sort");
    const began = performance.now();
    this.#isLooking = true;
    const isRead = await (sort && sort !== this.getAttribute("grows")
      ? this.#lookBetween()
      : this.#lookBehind()
    ).catch(() => false);
    this.#isLooking = false;
    this.#notBefore = performance.now() + (performance.now() - began) / LOOKING;
    if (isRead && this.getAttribute("live") === "last") this.removeAttribute("live");
  }

  #isLooking = false;
  #notBefore = 0;
  /** The text of the first page, as it was read last, and whether the table still shows an older one. */
  #top;
  #isOld = false;

  /** Read the last page again. Rows that are there stay as they are. */
  async #lookBehind() {
    const number = this.#last;
    if (number < 0 || this.#pages.has(number + 1)) return true;
    const pages = this.#pages;
    const { records, body } = this.#window.get(number);
    const now = await pages.load(number);
    if (pages !== this.#pages || !now || now.length <= records.length) return true;
    const added = now.slice(records.length);
    this.#window.set(number, { body, records: now });
    this.#discover(added);
    if (body.rows.length < now.length)
      body.append(...added.map((one, place) => this.#row(number, records.length + place, one)));
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
    return isIn || this.#drawer.element.open || (!marked.isCollapsed && this.#box.contains(marked.anchorNode));
  }

  // --- what is said of it

  #sayWhatThereIs() {
    const first = this.#pages.first(this.#first) ?? 0;
    const last = (this.#pages.first(this.#last) ?? 0) + (this.#window.get(this.#last)?.records.length ?? 0);
    const isAll = !this.#pages.has(this.#last + 1);
    const q = this.#asked("q");
    this.#earlier.hidden = !first;
    this.#more.hidden = isAll;
    this.#more.textContent = q && this.hasAttribute("search") ? "Look further" : "More records";
    this.#box.hidden = !last && isAll;
    if (this.#empty) this.#empty.hidden = Boolean(last) || !isAll || Boolean(q);
    this.#bar.hidden = Boolean(this.#empty) && !this.#empty.hidden;
    this.#said.textContent = this.#words(first, last, isAll, q);
    this.#table.setAttribute("aria-rowcount", isAll ? last + 1 : -1);
  }

  #words(first, last, isAll, q) {
    const total = this.getAttribute("total");
    if (q && this.hasAttribute("search")) {
      const of = isAll ? "all" : count(this.#pages.searched);
      return last
        ? `${count(last)} found in ${of} that were looked at`
        : `Nothing found in ${of} that were looked at`;
    }
    const known = isAll ? last : Math.max(Number(total ?? 0), last);
    const all = isAll || total ? count(known) : `${count(last)} or more`;
    return last ? `${count(first + 1)}–${count(last)} of ${all}` : "";
  }

  #tell(error) {
    const again = this.#plainButton("Try again", () => this.#loadMore());
    const words = error.status ? error.message : "The gateway does not answer. Is it running?";
    this.#problem.replaceChildren(h("p", {}, shown(words, 500)), h("p", {}, again));
    this.#problem.hidden = false;
  }

  // --- rows

  #fill(number, records) {
    const { body } = this.#window.get(number);
    const focused = body.contains(document.activeElement) ? document.activeElement.dataset.place : null;
    body.replaceChildren(...records.map((record, place) => this.#row(number, place, record)));
    if (focused) this.#rowButton(Number(focused))?.focus();
  }

  #row(number, place, record) {
    const index = this.#pages.first(number) + place;
    const attributes = { class: "open", type: "button", "data-place": index };
    const button = h("button", { ...attributes, "aria-label": `Record ${index + 1} in full` }, count(index + 1));
    button.addEventListener("click", () => this.#open(index));
    const cells = this.#chosen.map((name) => this.#cell(name, record));
    const row = h("tr", { "aria-rowindex": index + 2 }, h("th", { scope: "row", class: "number" }, button), ...cells);
    if (index !== this.#current) reach(row, false);
    return row;
  }

  #cell(name, record) {
    const value = valueAt(record, name);
    const { kind, hasNumbers } = this.#columns.get(name) ?? {};
    const isAtEnd = NUMBERS.has(kind) || isNumber(value) || (value === null && hasNumbers);
    const content = !kind ? cell(value) : value == null ? "" : KINDS[kind](value);
    return h("td", { class: isAtEnd ? "number" : kind === "link" ? "link" : null }, content);
  }

  #rowButton(index) {
    return this.#table.querySelector(`button[data-place="${index}"]`);
  }

  #recordAt(index) {
    for (const [number, { records }] of this.#window) {
      const place = index - this.#pages.first(number);
      if (place >= 0 && place < records.length) return records[place];
    }
    return undefined;
  }

  #setCurrent(index) {
    const before = this.#rowButton(this.#current);
    if (before) reach(before.closest("tr"), false);
    this.#current = index;
    const now = this.#rowButton(index);
    if (now) reach(now.closest("tr"), true);
  }

  #open(index) {
    this.#setCurrent(index);
    this.#drawer.open(`Record ${count(index + 1)}`, this.#recordAt(index));
  }

  async #neighbour(by) {
    const index = this.#current + by;
    if (!this.#recordAt(index)) await (by > 0 ? this.#loadMore() : this.#first > 0 && this.#loadEarlier());
    const record = this.#recordAt(index);
    if (!record) return null;
    this.#setCurrent(index);
    return [`Record ${count(index + 1)}`, record];
  }

  /** Arrow keys go from row to row. The Tab key reaches only what is in the present row, so it soon leads out again. */
  async #step(event) {
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[event.key];
    if (!by || event.target.dataset.place === undefined) return;
    event.preventDefault();
    const wanted = Math.max(0, this.#current + by);
    if (!this.#rowButton(wanted)) await (by > 0 ? this.#loadMore() : this.#first > 0 && this.#loadEarlier());
    if (!this.#rowButton(wanted)) return;
    this.#setCurrent(wanted);
    this.#rowButton(wanted).focus();
  }
}

/** Whether the Tab key stops at what is in the row. */
function reach(row, isReached) {
  for (const element of row.querySelectorAll("button.open, a, summary")) {
    if (isReached) element.removeAttribute("tabindex");
    else element.tabIndex = -1;
  }
}

/** The fields of an object behind the object. */
function inOrder(names) {
  const place = (name) => {
    const outer = names.indexOf(name.split(".")[0]);
    return outer < 0 ? names.indexOf(name) : outer;
  };
  return names.toSorted((one, other) => place(one) - place(other));
}

/** Pixels that a panel needs, and between it and the edge of the window. */
const LEAST = 240;
const EDGE = 16;

/** A button with a panel below it, or above where there is more room; Escape and a click elsewhere close it. */
function dropdown(symbol, words, panel) {
  const button = h("summary", { class: "button small" }, icon(symbol), words);
  const box = h("details", { class: "dropdown" }, button, panel);
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !box.open) return;
    event.stopPropagation();
    box.open = false;
    button.focus();
  });
  // before it opens: the toggle event comes when it was drawn already
  button.addEventListener("click", () => {
    const { top, bottom } = button.getBoundingClientRect();
    const [above, below] = [top - EDGE, innerHeight - bottom - EDGE];
    const isAbove = below < LEAST && above > below;
    panel.classList.toggle("above", isAbove);
    panel.style.maxHeight = `min(60vh, ${Math.round(isAbove ? above : below)}px)`;
  });
  document.addEventListener("click", (event) => {
    if (!box.contains(event.target)) box.open = false;
  });
  return box;
}

customElements.define("data-table", DataTable);
