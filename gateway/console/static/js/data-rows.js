// The rows of a table of records: the pages that are in the document, and the row that has the focus.
import { cellOf } from "./data-cells.js";
import { allWithin, h } from "./dom.js";
import { count } from "./text.js";

/** @typedef {Record<string, unknown>} Values */

/** Most pages in the document. Those that were scrolled out of sight are removed, and read again when needed. */
const MOST_PAGES = 12;

export class DataRows {
  /**
   * The rows in the document, by the number of their page.
   *
   * @type {Map<number, { body: HTMLTableSectionElement, records: Values[] }>}
   */
  #pages = new Map();
  #table;
  #columns;
  #firstOf;
  #onOpen;
  /** The index of the record whose row has the focus, or had it last. */
  current = 0;

  /**
   * @param {HTMLTableElement} table
   * @param {import("./data-columns.js").Columns} columns
   * @param {(number: number) => number} firstOf how many records are before a page
   * @param {(index: number) => void} onOpen a record shall be shown
   */
  constructor(table, columns, firstOf, onOpen) {
    this.#table = table;
    this.#columns = columns;
    this.#firstOf = firstOf;
    this.#onOpen = onOpen;
  }

  /** The number of the last page in the document; -1 if there is none. */
  get last() {
    return Math.max(-1, ...this.#pages.keys());
  }

  get first() {
    return Math.min(...this.#pages.keys());
  }

  get isFull() {
    return this.#pages.size > MOST_PAGES;
  }

  get isEmpty() {
    return !this.#pages.size;
  }

  /** @param {number} number */
  recordsOf(number) {
    return this.#pages.get(number)?.records ?? [];
  }

  clear() {
    for (const { body } of this.#pages.values()) body.remove();
    this.#pages.clear();
    this.current = 0;
  }

  draw() {
    for (const number of this.#pages.keys()) this.#fill(number);
  }

  /** @type {(number: number, records: Values[]) => void} */
  put(number, records) {
    const body = h("tbody");
    this.#pages.set(number, { body, records });
    this.#fill(number);
    const next = this.#pages.get(number + 1);
    if (next) next.body.before(body);
    else this.#table.append(body);
  }

  /**
   * Records that have come at the end of a page. Rows that are there stay as they are.
   *
   * @type {(number: number, added: Values[]) => void}
   */
  append(number, added) {
    const page = this.#pages.get(number);
    if (!page) return;
    const before = page.body.rows.length;
    page.records = [...page.records, ...added];
    const rows = page.records.slice(before).map((record, place) => this.#row(number, before + place, record));
    page.body.append(...rows);
  }

  /**
   * Takes a page out of the document. Returns the pixels that are gone.
   *
   * @param {number} number
   */
  drop(number) {
    const body = this.#pages.get(number)?.body;
    const height = body?.offsetHeight ?? 0;
    body?.remove();
    this.#pages.delete(number);
    return height;
  }

  /** @param {number} number */
  #fill(number) {
    const page = this.#pages.get(number);
    if (!page) return;
    const { activeElement } = document;
    const focused =
      activeElement instanceof HTMLElement && page.body.contains(activeElement) && activeElement.dataset.place;
    page.body.replaceChildren(...page.records.map((record, place) => this.#row(number, place, record)));
    if (focused) this.button(Number(focused))?.focus();
  }

  /** @type {(number: number, place: number, record: Values) => HTMLElement} */
  #row(number, place, record) {
    const index = this.#firstOf(number) + place;
    const attributes = { class: "open", type: "button", "data-place": index };
    const onclick = () => this.#onOpen(index);
    const named = { ...attributes, "aria-label": `Record ${index + 1} in full`, onclick };
    const heading = h("th", { scope: "row", class: "number" }, h("button", named, count(index + 1)));
    const cells = this.#columns.chosen.map((name) => cellOf(this.#columns.of(name), record));
    const row = h("tr", { "aria-rowindex": index + 2 }, heading, ...cells);
    if (index !== this.current) reach(row, false);
    return row;
  }

  /**
   * @param {number} index of a record
   * @returns {HTMLElement | null}
   */
  button(index) {
    return this.#table.querySelector(`button[data-place="${index}"]`);
  }

  /** @param {number} index */
  recordAt(index) {
    for (const [number, { records }] of this.#pages) {
      const record = records[index - this.#firstOf(number)];
      if (record) return record;
    }
    return undefined;
  }

  /** @param {number} index */
  setCurrent(index) {
    reach(this.button(this.current)?.closest("tr"), false);
    this.current = index;
    reach(this.button(index)?.closest("tr"), true);
  }
}

/**
 * Whether the Tab key stops at elements in the row.
 *
 * @type {(row: HTMLElement | null | undefined, isReached: boolean) => void}
 */
function reach(row, isReached) {
  if (!row) return;
  for (const element of allWithin(row, "button.open, a, summary")) {
    if (isReached) element.removeAttribute("tabindex");
    else element.tabIndex = -1;
  }
}
