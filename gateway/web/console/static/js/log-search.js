// The search bar of a log: looks through the whole log on the server, counts, and goes from one place to the next.
import { api } from "./api.js";
import { compare, position } from "./log-rows.js";
import { count, h, icon } from "./text.js";

/** Milliseconds after the last key until it searches. */
const PAUSE = 200;
const POSITIONS = 1000;

/**
 * `onGo(id)` is called with the place to show, `onFound()` when there are other places to mark. `element` is the bar.
 */
export class LogSearch {
  #job;
  #filter = () => ({});
  #on;
  #text = "";
  #found;
  #current = -1;
  #pages = new Map();
  #timer;
  #generation = 0;
  #added = 0;

  constructor(job, filter, on) {
    this.#job = job;
    this.#filter = filter;
    this.#on = on;
    this.input = h("input", {
      type: "search", id: "log-search", "aria-label": "Search the whole log", placeholder: "Search the whole log",
      autocomplete: "off", spellcheck: "false", maxlength: 200,
      oninput: () => this.#soon(),
      onkeydown: (event) => this.#key(event),
    });
    this.told = h("output", { for: "log-search", class: "log-hits small", "aria-live": "polite" });
    const button = (words, name, act) =>
      h("button", { type: "button", class: "button small quiet", "aria-label": words, title: words, onclick: act }, icon(name));
    this.element = h(
      "div", { class: "log-search", role: "search", hidden: true },
      this.input, this.told,
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
    return this.isOpen ? this.#text.toLowerCase() : "";
  }

  /** [attempt, offset] of each hit; of those beyond the first thousand [attempt, start, end] of the parts that have some. */
  get marks() {
    if (!this.isOpen || !this.#found) return [];
    const { positions, segments, lines } = this.#found;
    const hits = positions.map(position);
    if (lines <= hits.length) return hits;
    const last = hits.at(-1);
    const others = segments.filter(([attempt, , end, number]) => number && compare([attempt, end], last) > 0);
    return [...hits, ...others.map(([attempt, start, end]) => [attempt, compare([attempt, start], last) < 0 ? last[1] : start, end])];
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

  /** A new line has come. */
  add({ msg, logger = "", level, id, start }) {
    // what comes during the search is in its last answer
    if (!this.text || !this.#found || this.#found.next || !`[${logger}] ${level}: ${msg}`.toLowerCase().includes(this.text)) return;
    const [attempt, end] = position(id);
    if (compare([attempt, end], position(this.#found.end)) <= 0) return;
    const last = this.#found.segments.at(-1);
    if (this.#added && last[0] === attempt) [last[2], last[3]] = [end, last[3] + 1];
    else this.#found.segments.push([attempt, start, end, 1]);
    this.#added += 1;
    if (this.#found.positions.length < POSITIONS) this.#found.positions.push(id);
    this.#found.lines += 1;
    this.#found.end = id;
    this.#pages.delete(this.#found.segments.length - 1);
    this.#tell();
  }

  /** Search again: the filter has changed. */
  again() {
    if (this.#text) this.#search({ isMoving: false });
  }

  async step(by) {
    clearTimeout(this.#timer);
    if (this.input.value !== this.#text) return this.#search({ isMoving: true });
    const lines = this.#found?.lines;
    if (!lines) return;
    this.#current = (this.#current + by + lines) % lines;
    await this.#go();
  }

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

  async #search({ isMoving }) {
    const generation = ++this.#generation;
    this.#text = this.input.value;
    this.#found = undefined;
    this.#pages.clear();
    this.#added = 0;
    this.#current = -1;
    if (!this.#text) return this.#tell();
    this.told.textContent = "Searching…";
    try {
      await this.#findAll(generation);
    } catch (error) {
      if (generation === this.#generation) this.told.textContent = error.message;
      return;
    }
    if (generation !== this.#generation) return;
    if (this.#current < 0) this.#current = await this.#nearest(position(this.#on.here()));
    this.#tell();
    if (isMoving && this.#found?.lines) await this.#go();
  }

  /** An answer tells what it found in two seconds; its `next` goes on, until the text is changed. */
  async #findAll(generation) {
    const query = { ...this.#filter(), q: this.#text };
    for (let from; from !== null; from = this.#found.next) {
      const { lines = 0, segments = [], positions = [] } = this.#found ?? {};
      const limit = POSITIONS - positions.length;
      const found = await api(`GET /jobs/${this.#job}/logs/search`, { query: { ...query, from, limit } });
      if (generation !== this.#generation) return;
      const all = { segments: [...segments, ...found.segments], positions: [...positions, ...found.positions] };
      this.#found = { ...found, ...all, lines: lines + found.lines };
      if (found.next) this.#tell();
    }
  }

  /** The number of the first hit at or after a place, or of the first of all. */
  async #nearest(place) {
    const { segments } = this.#found;
    let before = 0;
    for (const [index, [attempt, , end, number]] of segments.entries()) {
      if (number && compare([attempt, end], place) >= 0) {
        const inside = (await this.#positions(index)).findIndex((id) => compare(position(id), place) >= 0);
        if (inside >= 0) return before + inside;
      }
      before += number;
    }
    return 0;
  }

  async #go() {
    const id = await this.#place(this.#current);
    this.#tell();
    if (id) this.#on.onGo(id);
  }

  async #place(number) {
    let before = 0;
    for (const [index, [, , , inside]] of this.#found.segments.entries()) {
      if (number < before + inside) return (await this.#positions(index, number - before))[number - before];
      before += inside;
    }
    return undefined;
  }

  /** Of the hits in one part of the log; as many as are needed for number `wanted`. */
  async #positions(index, wanted = 0) {
    const known = this.#pages.get(index) ?? [];
    const [attempt, start, end, number] = this.#found.segments[index];
    let from = known.at(-1) ?? `${attempt}-${start}`;
    while (from && known.length <= wanted && known.length < number) {
      const query = { ...this.#filter(), q: this.#text, from, to: `${attempt}-${end}`, limit: POSITIONS };
      const { positions, next } = await api(`GET /jobs/${this.#job}/logs/search`, { query });
      known.push(...positions);
      from = positions.length === POSITIONS ? positions.at(-1) : next;
    }
    this.#pages.set(index, known);
    return known;
  }

  #tell() {
    const lines = this.#found?.lines;
    if (!this.#text) this.told.textContent = "";
    else if (this.#found?.next) this.told.textContent = lines ? `${count(lines)} so far, searching…` : "Searching…";
    else if (!lines) this.told.textContent = this.#found ? "Not found" : "";
    else this.told.textContent = `${count(this.#current + 1)} of ${count(lines)}`;
    this.#on.onFound();
  }
}
