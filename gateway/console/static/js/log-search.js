// The search bar of a log: searches the whole log on the server, counts the hits, and goes from hit to hit.
import { messageOf } from "./api.js";
import { h, icon } from "./dom.js";
import { LogHits } from "./log-hits.js";
import { position } from "./log-positions.js";
import { count } from "./text.js";

/** Milliseconds from the last key to the search. */
const PAUSE = 200;

/**
 * @typedef {object} Hooks
 * @property {(id: PositionId) => void} onGo
 * @property {() => void} onFound
 * @property {() => void} onClose
 * @property {() => PositionId} here the place from which it searches
 */

/**
 * `onGo(id)` is called with the place to show, `onFound()` when there are other places to mark. `element` is the bar.
 */
export class LogSearch {
  /** @type {string} */
  #job;
  /** @type {() => import("./log-rows.js").Filter} */
  #filter;
  /** @type {Hooks} */
  #on;
  /**
   * The hits of the last search; `undefined` without a text.
   *
   * @type {LogHits | undefined}
   */
  #hits;
  /** @type {number | undefined} */
  #timer;

  /**
   * @param {string} job
   * @param {() => import("./log-rows.js").Filter} filter
   * @param {Hooks} on
   */
  constructor(job, filter, on) {
    this.#job = job;
    this.#filter = filter;
    this.#on = on;
    this.input = h("input", {
      type: "search",
      id: "log-search",
      "aria-label": "Search the log",
      placeholder: "Search the log",
      autocomplete: "off",
      spellcheck: "false",
      maxlength: 200,
      oninput: () => this.#soon(),
      onkeydown: (event) => this.#key(event),
    });
    this.told = h("output", { for: "log-search", class: "log-hits small", "aria-live": "polite" });
    /** @type {(words: string, name: string, act: () => void) => HTMLElement} */
    const button = (words, name, act) =>
      h(
        "button",
        { type: "button", class: "button small quiet", "aria-label": words, title: words, onclick: act },
        icon(name),
      );
    this.element = h(
      "div",
      { class: "log-search", role: "search", hidden: true },
      this.input,
      this.told,
      button("Previous (Shift+Enter)", "up-arrow", () => this.step(-1)),
      button("Next (Enter)", "down-arrow", () => this.step(1)),
      button("Close (Escape)", "close", () => this.close()),
    );
  }

  get isOpen() {
    return !this.element.hidden;
  }

  /** The text that is looked for, in lower case; empty if there is none. */
  get text() {
    return (this.isOpen && this.#hits?.text.toLowerCase()) || "";
  }

  /** See `LogHits`. */
  get marks() {
    return (this.isOpen && this.#hits?.marks) || [];
  }

  /** Look for what the page's address asks for. */
  begin() {
    this.input.value = new URLSearchParams(location.search).get("q") ?? "";
    if (!this.input.value) return;
    this.open();
    this.step(1);
  }

  open() {
    this.element.hidden = false;
    this.input.focus();
    this.input.select();
    this.#on.onFound();
  }

  close() {
    this.element.hidden = true;
    this.#on.onFound();
    this.#on.onClose();
  }

  /**
   * A new line has come.
   *
   * @type {(line: LogLine) => void}
   */
  add(line) {
    if (this.isOpen && this.#hits?.add(line)) this.#tell();
  }

  /** Search again: the filter has changed. */
  again() {
    if (this.#hits) this.#search({ isMoving: false });
  }

  /** @type {(by: number) => Promise<void>} */
  async step(by) {
    clearTimeout(this.#timer);
    if (this.input.value !== (this.#hits?.text ?? "")) return this.#search({ isMoving: true });
    const hits = this.#hits;
    if (!hits?.lines) return;
    hits.current = (hits.current + by + hits.lines) % hits.lines;
    await this.#go(hits);
  }

  /** @type {(event: KeyboardEvent) => void} */
  #key(event) {
    if (event.key === "Enter") this.step(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape") this.close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  #soon() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#search({ isMoving: true }), PAUSE);
  }

  /** @type {(how: { isMoving: boolean }) => Promise<void>} */
  async #search({ isMoving }) {
    const text = this.input.value;
    const hits = text ? new LogHits(this.#job, this.#filter(), text) : undefined;
    const isWanted = () => this.#hits === hits;
    this.#hits = hits;
    if (!hits) return this.#tell();
    this.told.textContent = "Searching…";
    try {
      await hits.findAll(isWanted, () => isWanted() && this.#tell());
      if (hits.current < 0) {
        const nearest = await hits.nearest(position(this.#on.here()));
        // the user may have gone to another hit in the meantime
        if (hits.current < 0) hits.current = nearest;
      }
    } catch (error) {
      if (isWanted()) this.told.textContent = messageOf(error);
      return;
    }
    if (!isWanted()) return;
    this.#tell();
    if (isMoving && hits.lines) await this.#go(hits);
  }

  /** @type {(hits: LogHits) => Promise<void>} */
  async #go(hits) {
    const id = await hits.place();
    if (this.#hits !== hits) return;
    this.#tell();
    if (id) this.#on.onGo(id);
  }

  #tell() {
    const { lines, isWhole, current } = this.#hits ?? {};
    if (lines === undefined) this.told.textContent = "";
    else if (!isWhole) this.told.textContent = lines ? `${count(lines)} so far, searching…` : "Searching…";
    else if (!lines) this.told.textContent = "No matches";
    else this.told.textContent = `${count((current ?? 0) + 1)} of ${count(lines)}`;
    this.#on.onFound();
  }
}
