// A drawer that shows one record, with steps to its neighbours.
import { h, icon } from "./dom.js";
import { jobPlaces, pageOf } from "./job-places.js";
import { tree } from "./record-values.js";

/** @type {Record<string, number>} */
const STEPS = { ArrowRight: 1, ArrowLeft: -1, j: 1, k: -1 };

/**
 * @typedef {Record<string, unknown>} Values
 * @typedef {(by: number) => Promise<[title: string, record: Values] | null>} Step
 */

/**
 * Shows a record beside its table. `step(1)` and `step(-1)` go to its neighbours and say what they are; `isTime(name)`
 * says whether a field is a time.
 */
export class Drawer {
  /** @type {Step} */
  #step;
  /** @type {(name: string) => boolean} */
  #isTime;
  #title = h("h2", { id: "drawer-title", tabindex: "-1" });
  #content = h("div", { class: "drawer-content" });
  /** @type {Values} */
  #record = {};
  /** @type {HTMLDialogElement} */
  #dialog;

  /**
   * @param {Step} step
   * @param {(name: string) => boolean} isTime
   */
  constructor(step, isTime) {
    this.#step = step;
    this.#isTime = isTime;
    /** @type {(name: string, words: string, act: () => void) => HTMLElement} */
    const button = (name, words, act) => {
      const made = h(
        "button",
        { class: "button quiet small", type: "button", "aria-label": words, title: words },
        icon(name),
      );
      made.addEventListener("click", act);
      return made;
    };
    const words = new Text("Copy as JSON");
    const copy = h("button", { class: "button small", type: "button", "aria-live": "polite" }, icon("copy"), words);
    copy.addEventListener("click", async () => {
      const done = await copied(JSON.stringify(this.#record, null, 2), this.#dialog);
      words.data = done ? "Copied" : "The browser blocked copying";
      setTimeout(() => {
        words.data = "Copy as JSON";
      }, 3000);
    });
    const close = button("close", "Close", () => this.#dialog.close());
    const steps = [
      button("previous", "Previous record", () => this.#go(-1)),
      button("next", "Next record", () => this.#go(1)),
    ];
    const head = h("div", { class: "drawer-head" }, this.#title, ...steps, copy, close);
    this.#dialog = h("dialog", { class: "drawer", "aria-labelledby": "drawer-title" }, head, this.#content);
    this.#dialog.addEventListener("click", (event) => event.target === this.#dialog && this.#dialog.close());
    this.#dialog.addEventListener("keydown", (event) => {
      const step = STEPS[event.key];
      if (step && !event.ctrlKey && !event.metaKey && !event.altKey) this.#go(step);
    });
  }

  /** The element, for the table to hold. */
  get element() {
    return this.#dialog;
  }

  /** @type {(title: string, record: Values) => void} */
  open(title, record) {
    this.#record = record;
    this.#title.textContent = title;
    const places = jobPlaces(pageOf(record));
    this.#content.replaceChildren(...(places ? [places] : []), tree(record, 0, this.#isTime));
    this.#content.scrollTop = 0;
    if (!this.#dialog.open) this.#dialog.showModal();
    this.#title.focus();
  }

  /** @type {(by: number) => Promise<void>} */
  async #go(by) {
    const found = await this.#step(by);
    if (found) this.open(...found);
  }
}

/**
 * Copy the text; returns whether it is in the clipboard now. A page over plain http from another machine can only copy
 * a selection.
 *
 * @type {(text: string, place: HTMLElement) => Promise<boolean>}
 */
async function copied(text, place) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h("textarea", { class: "visually-hidden", "aria-hidden": "true", tabindex: "-1" });
    area.value = text;
    place.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}
