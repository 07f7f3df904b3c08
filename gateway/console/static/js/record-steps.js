// The way from record to record: by the arrow keys in a table, and in the drawer that shows a record in full.
import { above } from "./dom.js";
import { Drawer } from "./record-drawer.js";
import { count } from "./text.js";

/** @typedef {import("./data-rows.js").DataRows} DataRows */

/** @type {Record<string, number>} */
const STEPS = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 };

export class RecordSteps {
  #rows;
  #load;

  /**
   * @param {DataRows} rows
   * @param {(by: number) => Promise<void>} load reads more rows: behind those that are there, or before them
   * @param {(name: string) => boolean} isTime whether a field is a time
   */
  constructor(rows, load, isTime) {
    this.#rows = rows;
    this.#load = load;
    this.drawer = new Drawer((by) => this.#neighbour(by), isTime);
    this.drawer.element.addEventListener("close", () => rows.button(rows.current)?.focus());
  }

  /**
   * Show a record in full.
   *
   * @param {number} index
   */
  open(index) {
    const record = this.#rows.recordAt(index);
    if (!record) return;
    this.#rows.setCurrent(index);
    this.drawer.open(`Record ${count(index + 1)}`, record);
  }

  /**
   * The record that comes after the present one, or before it.
   *
   * @param {number} by
   * @returns {Promise<[title: string, record: Record<string, unknown>] | null>}
   */
  async #neighbour(by) {
    const index = this.#rows.current + by;
    if (!this.#rows.recordAt(index)) await this.#load(by);
    const record = this.#rows.recordAt(index);
    if (!record) return null;
    this.#rows.setCurrent(index);
    return [`Record ${count(index + 1)}`, record];
  }

  /**
   * Arrow keys go from row to row. The Tab key reaches only what is in the present row, so it soon leads out again.
   *
   * @param {KeyboardEvent} event
   */
  async step(event) {
    const by = STEPS[event.key];
    if (!by || !above(event, "[data-place]")) return;
    event.preventDefault();
    const wanted = Math.max(0, this.#rows.current + by);
    if (!this.#rows.button(wanted)) await this.#load(by);
    const button = this.#rows.button(wanted);
    if (!button) return;
    this.#rows.setCurrent(wanted);
    button.focus();
  }
}
