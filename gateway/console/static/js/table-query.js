// The query of a table of records. It is in the page's address, so that a link leads to the same records.
import { address } from "./api.js";

/** @typedef {import("./api.js").Query} Query */

export class TableQuery {
  #table;

  /** @param {HTMLElement} table the element, whose attributes name the route */
  constructor(table) {
    this.#table = table;
  }

  /** Whether the route can search. */
  get isSearched() {
    return this.#table.hasAttribute("search");
  }

  /** The text to search for; empty without a search. */
  get q() {
    return this.isSearched ? this.#asked("q") : "";
  }

  get sort() {
    return this.#asked("sort") || this.#table.getAttribute("order") || "";
  }

  /** The search and the order that the user has chosen, as a query. */
  get asShown() {
    return { q: this.q || undefined, sort: this.sort || undefined };
  }

  /** @param {string} name */
  #asked(name) {
    return new URLSearchParams(location.search).get(name) ?? "";
  }

  /**
   * Have values in the page's address.
   *
   * @type {(name: string, values: string[]) => void}
   */
  note(name, values) {
    const page = new URL(location.href);
    page.searchParams.delete(name);
    for (const value of values) page.searchParams.append(name, value);
    history.replaceState(history.state, "", page);
  }

  /**
   * The route's address, with its own query and `query`, which wins where both have a parameter.
   *
   * @param {Query} query
   */
  address(query) {
    const [path = "", own] = (this.#table.getAttribute("src") ?? "").split("?");
    const given = new URLSearchParams(own);
    const named = Object.fromEntries([...given.keys()].map((name) => [name, given.getAll(name)]));
    return address(path, { ...named, ...query });
  }
}
