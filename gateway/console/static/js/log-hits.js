// The hits of one search in a log. Each search has an object of its own, so a late answer never mixes with the next one.
import { api } from "./api.js";
import { compare, position } from "./log-positions.js";

const POSITIONS = 1000;

/**
 * The place of a hit, or a range with some hits.
 *
 * @typedef {[attempt: number, start: number, end?: number]} Mark
 * @typedef {import("./log-rows.js").Filter} Filter
 * @typedef {import("./log-positions.js").Position} Position
 */

export class LogHits {
  /**
   * How many hits there are, as far as the log was searched; `undefined` before the first answer.
   *
   * @type {number | undefined}
   */
  lines;
  /** Whether all of the log was searched. */
  isWhole = false;
  /** The number of the hit that is shown; the first one is 0, and -1 stands for none. */
  current = -1;
  /** @type {string} */
  #job;
  /** @type {Filter & { q: string }} */
  #query;
  /** @type {PositionId} */
  #end = "0-0";
  /** @type {LogPart[]} */
  #segments = [];
  /** @type {PositionId[]} */
  #positions = [];
  /** @type {Map<number, PositionId[]>} */
  #pages = new Map();
  #added = 0;

  /**
   * @param {string} job
   * @param {Filter} filter
   * @param {string} text
   */
  constructor(job, filter, text) {
    this.#job = job;
    this.#query = { ...filter, q: text };
    this.text = text;
  }

  /**
   * Search the whole log. An answer has the hits of two seconds; the search goes on from its `next` while `isWanted()`.
   *
   * @type {(isWanted: () => boolean, onPart: () => void) => Promise<void>}
   */
  async findAll(isWanted, onPart) {
    /** @type {PositionId | null | undefined} */
    let from;
    while (from !== null && isWanted()) {
      const limit = POSITIONS - this.#positions.length;
      const found = await this.#ask({ from, limit });
      this.#segments.push(...found.segments);
      this.#positions.push(...found.positions);
      this.lines = (this.lines ?? 0) + found.lines;
      this.#end = found.end;
      from = found.next;
      this.isWhole = from === null;
      if (!this.isWhole) onPart();
    }
  }

  /**
   * Take a new line. Returns whether it is one more hit. Lines that come during the search are in its last answer.
   *
   * @type {(line: LogLine) => boolean}
   */
  add({ msg, logger = "", level, id, start }) {
    if (!this.isWhole || !`[${logger}] ${level}: ${msg}`.toLowerCase().includes(this.text.toLowerCase()))
      return false;
    const [attempt, end] = position(id);
    if (compare([attempt, end], position(this.#end)) <= 0) return false;
    const last = this.#segments.at(-1);
    if (this.#added && last?.[0] === attempt) [last[2], last[3]] = [end, last[3] + 1];
    else this.#segments.push([attempt, start, end, 1]);
    this.#added += 1;
    if (this.#positions.length < POSITIONS) this.#positions.push(id);
    this.lines = (this.lines ?? 0) + 1;
    this.#end = id;
    this.#pages.delete(this.#segments.length - 1);
    return true;
  }

  /**
   * [attempt, offset] of each hit; of those beyond the first thousand [attempt, start, end] of the parts that have some.
   *
   * @type {Mark[]}
   */
  get marks() {
    const hits = this.#positions.map(position);
    if (!this.lines || this.lines <= hits.length) return hits;
    const last = hits.at(-1) ?? [0, 0];
    const others = this.#segments.filter(([attempt, , end, number]) => number && compare([attempt, end], last) > 0);
    /** @type {(part: LogPart) => Mark} */
    const mark = ([attempt, start, end]) => [attempt, compare([attempt, start], last) < 0 ? last[1] : start, end];
    return [...hits, ...others.map(mark)];
  }

  /**
   * The number of the first hit at or after a place, or of the first of all.
   *
   * @type {(place: Position) => Promise<number>}
   */
  async nearest(place) {
    let before = 0;
    for (const [index, [attempt, , end, number]] of this.#segments.entries()) {
      if (number && compare([attempt, end], place) >= 0) {
        const inside = (await this.#inside(index)).findIndex((id) => compare(position(id), place) >= 0);
        if (inside >= 0) return before + inside;
      }
      before += number;
    }
    return 0;
  }

  /**
   * The place of the current hit.
   *
   * @type {() => Promise<PositionId | undefined>}
   */
  async place() {
    let before = 0;
    for (const [index, [, , , inside]] of this.#segments.entries()) {
      const number = this.current - before;
      if (number < inside) return (await this.#inside(index, number))[number];
      before += inside;
    }
    return undefined;
  }

  /**
   * Positions of hits in one part of the log: as many as are needed for number `wanted`.
   *
   * @type {(index: number, wanted?: number) => Promise<PositionId[]>}
   */
  async #inside(index, wanted = 0) {
    const known = this.#pages.get(index) ?? [];
    const [attempt, start, end, number] = this.#segments[index];
    /** @type {PositionId | null | undefined} */
    let from = known.at(-1) ?? `${attempt}-${start}`;
    while (from && known.length <= wanted && known.length < number) {
      const { positions, next } = await this.#ask({ from, to: `${attempt}-${end}`, limit: POSITIONS });
      known.push(...positions);
      from = positions.length === POSITIONS ? positions.at(-1) : next;
    }
    this.#pages.set(index, known);
    return known;
  }

  /** @type {(part: import("./api.js").Query) => Promise<LogFound>} */
  #ask(part) {
    return api(`GET /jobs/${this.#job}/logs/search`, { query: { ...this.#query, ...part } });
  }
}
