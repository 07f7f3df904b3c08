// The parts of a log ("segments") with the number of lines in each: which row is where.
import { compare, linesBefore, partWith } from "./log-positions.js";

/**
 * @typedef {import("./log-positions.js").Position} Position
 * @typedef {{ attempt: number } | { gap: PositionId[] }} Note
 * @typedef {object} Segment
 * @property {number} attempt
 * @property {number} start
 * @property {number} end
 * @property {number} lines
 * @property {number} first the number of its first row
 * @property {Note} [note] the segment is one row, which is not a line
 * @property {boolean} [isLive] the segment's lines came over the stream
 */

export class LogSegments {
  /** @type {Segment[]} */
  #all = [];
  /** How many rows there are. */
  count = 0;

  /** Whether any segment has a line. */
  get hasLines() {
    return this.#all.some(({ note, lines }) => !note && lines);
  }

  get last() {
    return this.#all.at(-1);
  }

  clear() {
    this.#all = [];
    this.count = 0;
  }

  /** @type {(attempt: number, start: number, end: number, lines: number) => Segment} */
  add(attempt, start, end, lines) {
    const before = this.#all.findLast(({ note }) => !note);
    if (before && before.attempt !== attempt) this.note({ attempt }, attempt);
    const segment = { attempt, start, end, lines, first: this.count };
    this.#all.push(segment);
    this.count += lines;
    return segment;
  }

  /** @type {(note: Note, attempt: number) => void} */
  note(note, attempt) {
    this.#all.push({ note, attempt, start: 0, end: 0, lines: 1, first: this.count });
    this.count += 1;
  }

  /**
   * The last segment has one line more.
   *
   * @param {Segment} segment
   */
  grow(segment) {
    segment.lines += 1;
    this.count += 1;
  }

  /**
   * A segment has another number of lines than was known.
   *
   * @type {(segment: Segment, lines: number) => void}
   */
  resize(segment, lines) {
    segment.lines = lines;
    this.count = 0;
    for (const one of this.#all) {
      one.first = this.count;
      this.count += one.lines;
    }
  }

  /**
   * The segment in which a row is.
   *
   * @param {number} row
   * @returns {Segment | undefined}
   */
  with(row) {
    return this.#all[partWith(this.#all, row)];
  }

  /**
   * The first segment with lines that ends at a position or behind it.
   *
   * @param {Position} place
   */
  at(place) {
    return this.#all.find(({ attempt, end, note, lines }) => !note && lines && compare([attempt, end], place) >= 0);
  }

  /**
   * The share of the rows before a position: from 0 to 1.
   *
   * @param {Position} place
   * @param {(segment: Segment) => LogLine[] | undefined} linesOf those that were read
   */
  share([attempt, offset], linesOf) {
    const segment = this.#all.find((one) => !one.note && compare([one.attempt, one.end], [attempt, offset]) > 0);
    if (!segment) return 1;
    const lines = linesOf(segment);
    const share = Math.max(0, (offset - segment.start) / (segment.end - segment.start));
    // the lengths of lines that were not read are unknown
    const inside = lines ? linesBefore(lines, [attempt, offset]) : share * segment.lines;
    return (segment.first + inside) / Math.max(1, this.count);
  }
}
