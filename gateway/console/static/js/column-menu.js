// The menu in which somebody chooses the columns of a table.
import { allWithin, h, within } from "./dom.js";
import { dropdown } from "./dropdown.js";
import { shown } from "./text.js";

/** @typedef {import("./data-columns.js").Columns} Columns */

export class ColumnMenu {
  #columns;
  #onChoose;
  #list = h("div", { class: "data-columns" });

  /**
   * @param {Columns} columns
   * @param {(names: string[] | undefined) => void} onChoose undefined stands for the usual ones
   */
  constructor(columns, onChoose) {
    this.#columns = columns;
    this.#onChoose = onChoose;
    const button = (/** @type {string} */ words, /** @type {() => void} */ onclick) =>
      h("button", { class: "button small", type: "button", onclick }, words);
    const all = button("All", () => onChoose(columns.all));
    const usual = button("Default", () => onChoose(undefined));
    const whole = h("div", { class: "row" }, all, usual);
    const panel = h("fieldset", { class: "panel" }, h("legend", {}, "Columns"), whole, this.#list);
    this.element = dropdown("filter", "Columns", panel);
  }

  draw() {
    const chosen = new Set(this.#columns.chosen);
    const all = this.#columns.names.length;
    within(this.element, "summary span").textContent =
      chosen.size < all ? `Columns: ${chosen.size} of ${all}` : "Columns";
    const { activeElement } = document;
    const focused =
      activeElement instanceof HTMLInputElement && this.#list.contains(activeElement) && activeElement.value;
    this.#list.replaceChildren(...this.#columns.names.map((name) => this.#tick(name, chosen.has(name))));
    if (focused !== false)
      allWithin(this.#list, "input", HTMLInputElement)
        .find((box) => box.value === focused)
        ?.focus();
  }

  /** @type {(name: string, isChosen: boolean) => HTMLElement} */
  #tick(name, isChosen) {
    const box = h("input", { type: "checkbox", value: name, checked: isChosen });
    box.addEventListener("change", () => {
      const left = this.#columns.chosen.filter((one) => one !== name);
      this.#onChoose(box.checked ? [...left, name] : left);
    });
    return h("label", { class: "data-column" }, box, h("bdi", {}, shown(this.#columns.of(name).label, 60)));
  }
}
