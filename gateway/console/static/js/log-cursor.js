// The current line of a log: the arrow keys go to another one, and the page's address names it.
import { allWithin } from "./dom.js";
import { shown } from "./text.js";

/** Pixels by which the rows move with the line, near the edges of what is in sight. */
const STEP = 20;

/**
 * @typedef {object} Hooks
 * @property {() => void} onMove somebody goes from line to line, so the view stops following the log
 * @property {(element: HTMLElement) => void} onWhole a line shall be shown in full
 */

export class LogCursor {
  #view;
  #rows;
  #news;
  #on;
  /**
   * The position of the current line.
   *
   * @type {PositionId | undefined}
   */
  id;

  /**
   * @param {import("./virtual-rows.js").VirtualRows} view
   * @param {import("./log-rows.js").LogRows} rows
   * @param {import("./log-news.js").LogNews} news
   * @param {Hooks} on
   */
  constructor(view, rows, news, on) {
    this.#view = view;
    this.#rows = rows;
    this.#news = news;
    this.#on = on;
  }

  get #element() {
    return allWithin(this.#view.layer, "[aria-current]")[0];
  }

  /**
   * Make the next line, or the one before, the current one.
   *
   * @param {number} by
   */
  step(by) {
    const at = this.#element;
    const [first, last] = this.#view.inSight;
    const number = at ? Number(at.dataset.number) + by : by > 0 ? first : last;
    const row = this.#rows.row(number);
    if (!row || !("id" in row)) return;
    this.id = row.id;
    this.#on.onMove();
    if (number <= first || number >= last - 1) this.#view.move(by * STEP);
    this.#view.refresh();
    this.#news.announce(`${row.level} ${shown(row.msg, 200)}`);
  }

  /** Have the line in the page's address, and show it in full where it is long or folded. */
  enter() {
    const element = this.#element;
    if (!element) return;
    history.replaceState(history.state, "", `#${this.id}`);
    if (element.querySelector("[data-whole]")) this.#on.onWhole(element);
    allWithin(element, "[data-unfold]")[0]?.click();
  }
}
