// The columns of a table of records: which are known, and which are chosen. The choice is in the page's address, and
// the browser keeps it.
import { own } from "./api.js";
import { isNumber } from "./record.js";

/**
 * @typedef {Record<string, unknown>} Values
 * @typedef {object} Column
 * @property {string} name
 * @property {string} label
 * @property {string} [kind] how a value is written
 * @property {string[]} sorts values of the route's `sort`, one for each direction
 * @property {boolean} [hidden] not shown until somebody chooses it
 * @property {boolean} [hasNumbers]
 */

/** How many columns are shown at first, and how many are known at most. */
const FIRST_COLUMNS = 8;
const MOST_COLUMNS = 300;

export class Columns {
  /** @type {Map<string, Column>} */
  #known = new Map();
  #place;
  /**
   * The names of the chosen columns.
   *
   * @type {string[]}
   */
  chosen;

  /**
   * @param {(string | Partial<Column> & { name: string })[]} given
   * @param {string} keep under which name the browser keeps what is chosen
   */
  constructor(given, keep) {
    for (const column of given) this.know(column);
    this.#place = own(`columns:${keep}`);
    this.chosen = this.#chosenBefore();
  }

  /** @param {string} name */
  of(name) {
    return this.#known.get(name) ?? { name, label: name, sorts: [] };
  }

  /** All names, of known columns and of chosen ones; the fields of an object behind the object. */
  get names() {
    return inOrder([...new Set([...this.#known.keys(), ...this.chosen])]);
  }

  get all() {
    return [...this.#known.keys()];
  }

  /** @param {string | Partial<Column> & { name: string }} column */
  know(column) {
    const given = typeof column === "string" ? { name: column } : column;
    if (this.#known.size < MOST_COLUMNS) this.#known.set(given.name, { label: given.name, sorts: [], ...given });
  }

  /** @param {string} name */
  isKnown(name) {
    return this.#known.has(name);
  }

  /**
   * Learn from records which columns there are. Returns whether there is something new.
   *
   * @param {Values[]} records
   */
  discover(records) {
    const before = this.#known.size;
    const isUsual = this.#usual().join("\n") === this.chosen.join("\n");
    let hasChanged = false;
    for (const [name, value] of records.flatMap((record) => Object.entries(record))) {
      if (!this.isKnown(name)) this.know(name);
      const column = this.#known.get(name);
      if (!column || column.hasNumbers || !isNumber(value)) continue;
      column.hasNumbers = true;
      hasChanged = true;
    }
    if (this.#known.size === before && !hasChanged) return false;
    if (isUsual) this.chosen = this.#usual();
    return true;
  }

  /**
   * Choose columns by their names; the usual ones if there are none.
   *
   * @param {string[]} [names]
   */
  choose(names) {
    this.chosen = names ?? this.#usual();
    try {
      if (names) localStorage.setItem(this.#place, JSON.stringify(names));
      else localStorage.removeItem(this.#place);
    } catch {
      // then the choice is only for this page
    }
  }

  /** @returns {string[]} */
  #chosenBefore() {
    const asked = new URLSearchParams(location.search).getAll("column");
    if (asked.length) return asked;
    try {
      return JSON.parse(localStorage.getItem(this.#place) ?? "null") ?? this.#usual();
    } catch {
      return this.#usual();
    }
  }

  #usual() {
    const shown = [...this.#known.values()].filter((column) => !column.hidden);
    return shown.slice(0, FIRST_COLUMNS).map((column) => column.name);
  }
}

/** @param {string[]} names */
export function inOrder(names) {
  const place = (/** @type {string} */ name) => {
    const outer = names.indexOf(name.split(".")[0] ?? "");
    return outer < 0 ? names.indexOf(name) : outer;
  };
  return names.toSorted((one, other) => place(one) - place(other));
}
