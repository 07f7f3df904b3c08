// The elements of a table of records, and the lines around it.
import { messageOf } from "./api.js";
import { headingOf } from "./data-cells.js";
import { h } from "./dom.js";
import { rangeWords } from "./table-words.js";
import { shown } from "./text.js";

/**
 * @typedef {object} Hooks
 * @property {() => void} onEarlier
 * @property {() => void} onMore
 * @property {() => void} onNews
 * @property {(sort: string) => void} onSort
 */

export class TableFrame {
  #on;
  #head = h("tr");
  #said = h("p", { class: "muted small", role: "status" });
  #earlier;
  table = h("table", { class: "table data" });
  box = h("div", { class: "scroll data-box", role: "region", tabindex: "0" });
  bar = h("div", { class: "row data-bar" });
  problem = h("div", { class: "problem", role: "alert", hidden: true });

  /** @param {Hooks} on */
  constructor(on) {
    this.#on = on;
    this.#earlier = hiddenButton("Earlier records", on.onEarlier);
    this.more = hiddenButton("More records", on.onMore);
    this.news = hiddenButton("Show new records", on.onNews);
  }

  /**
   * Put it together. Returns its parts, from the top.
   *
   * @param {string} label
   * @param {(HTMLElement | null)[]} before what stands in the bar before what is said
   * @param {(HTMLElement | null)[]} after and what stands behind that
   */
  built(label, before, after) {
    this.box.setAttribute("aria-label", label);
    this.table.append(h("caption", { class: "visually-hidden" }, label), h("thead", {}, this.#head));
    this.box.append(this.#earlier, this.table, h("div", { class: "data-end" }, this.more));
    const bar = [...before, this.#said, this.news, ...after];
    this.bar.append(...bar.filter((part) => part !== null));
    return [this.bar, this.problem, this.box];
  }

  /** @type {(columns: import("./data-columns.js").Columns, sort: string) => void} */
  drawHead(columns, sort) {
    const head = this.#head;
    const numbered = h(
      "th",
      { scope: "col", class: "number" },
      h("span", { class: "visually-hidden" }, "Record"),
      "#",
    );
    const focused = [...head.children].findIndex((heading) => heading.contains(document.activeElement));
    const headings = columns.chosen.map((name) => headingOf(columns.of(name), sort, this.#on.onSort));
    head.replaceChildren(numbered, ...headings);
    head.children[focused]?.querySelector("button")?.focus({ preventScroll: true });
  }

  /** @param {string} words */
  say(words) {
    this.#said.textContent = words;
  }

  /**
   * Say which records are shown, and what else there is.
   *
   * @param {Parameters<typeof rangeWords>[0]} range
   * @param {string | null} total
   * @param {HTMLElement | null} empty what the page says where there is nothing
   */
  tellRange(range, total, empty) {
    const { first, last, isAll, searched } = range;
    const isSearch = searched !== undefined;
    this.#earlier.hidden = !first;
    this.more.hidden = isAll;
    this.more.textContent = isSearch ? "Keep searching" : "More records";
    this.box.hidden = !last && isAll;
    if (empty) empty.hidden = Boolean(last) || !isAll || isSearch;
    this.bar.hidden = empty !== null && !empty.hidden;
    this.say(rangeWords(range, total));
    this.table.setAttribute("aria-rowcount", String(isAll ? last + 1 : -1));
  }

  /** @param {unknown} error */
  tellProblem(error) {
    const again = h("button", { class: "button small", type: "button", onclick: this.#on.onMore }, "Try again");
    this.problem.replaceChildren(h("p", {}, shown(messageOf(error), 500)), h("p", {}, again));
    this.problem.hidden = false;
  }
}

/** @type {(words: string, act: () => void) => HTMLElement} */
function hiddenButton(words, act) {
  return h("button", { class: "button small", type: "button", hidden: true, onclick: act }, words);
}
