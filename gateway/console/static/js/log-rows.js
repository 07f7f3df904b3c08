// The rows of a log: where each of its lines is, and the lines that were read. Only a part of the lines is held.
//
// The API counts the lines of each part of the log ("segment"). A row's number leads to its segment, whose lines are
// read when they are to be shown. New lines come over the stream; they make segments of their own.
import { api } from "./api.js";
import { push } from "./log-fold.js";
import { atLeast, compare, position } from "./log-positions.js";
import { LogSegments } from "./log-segments.js";
import { follow } from "./streams.js";

/** Segments whose lines are held: those shown last. */
const MOST_HELD = 40;
/** Lines after which a new segment begins at the live end. */
const LIVE_LINES = 500;
const PAGE = 5000;
/** Milliseconds until lines that are not stored yet are asked for again, and how often. */
const PATIENCE = 500;
const TRIES = 20;

/**
 * @typedef {import("./log-positions.js").Position} Position
 * @typedef {{ level?: string, logger?: string }} Filter
 * @typedef {import("./log-segments.js").Note} Note
 * @typedef {import("./log-segments.js").Segment} Segment
 * @typedef {{ lines: number, levels: Record<string, number>, loggers: { name: string }[] }} Totals
 * @typedef {LogLine | Note} Row
 * @typedef {object} Hooks
 * @property {import("./log-fold.js").Names} folded lines that are shown as one row until somebody goes to one of them
 * @property {() => void} onChange
 * @property {(state: import("./streams.js").State) => void} onState
 * @property {(counts: Totals) => void} onCounts
 * @property {(line: LogLine) => void} onLine
 * @property {(error: unknown) => void} onError
 */

/**
 * `onChange()` is called when there are other rows, or more is known of them; `onState(state)` as in `follow`;
 * `onCounts({lines, levels, loggers})` when the whole log's counts are known; `onLine(row)` for each new line.
 *
 * A row is a line as the API has it, or `{ attempt }` (a new attempt begins), or `{ gap }` (lines were removed).
 */
export class LogRows {
  /** @type {string} */
  #job;
  /** @type {Hooks} */
  #on;
  /** @type {import("./log-fold.js").Names} */
  #names;
  /** The names by which lines are folded now: none once a folded line was visited, or if the filter has a logger. */
  #folding;
  /** @type {Filter} */
  #filter = {};
  #segments = new LogSegments();
  /** @type {Map<Segment, LogLine[]>} */
  #held = new Map();
  /** @type {Map<Segment, Promise<void>>} */
  #reading = new Map();
  /** @type {Position} */
  #end = [1, 0];
  /** The level and logger of the last line: a continuation line has them, too. */
  #last = { level: "INFO", logger: "" };
  /** @type {import("./streams.js").FollowedEvent[]} */
  #early = [];
  #generation = 0;
  /** @type {(() => void) | undefined} */
  #stop;
  #ready = false;
  /** @type {Totals} */
  counts = { lines: 0, levels: {}, loggers: [] };

  /**
   * @param {string} job
   * @param {Hooks} on
   */
  constructor(job, on) {
    this.#job = job;
    this.#on = on;
    this.#folding = this.#names = on.folded;
  }

  get count() {
    return this.#segments.count;
  }

  get filter() {
    return this.#filter;
  }

  /** Whether there is a line of this level and logger. */
  get hasLines() {
    return this.#segments.hasLines;
  }

  /** Whether the log has no line at all, as far as is known. */
  get isEmpty() {
    return !this.hasLines && !this.counts.lines;
  }

  /** Where the last line ends that is known. */
  get end() {
    return this.#end.join("-");
  }

  close() {
    this.#generation += 1;
    this.#stop?.();
  }

  /**
   * Show the lines of a level or higher, and of a logger. Resolves when the rows are counted.
   *
   * @type {(filter?: Filter) => Promise<void>}
   */
  async load(filter = {}) {
    const generation = ++this.#generation;
    this.#ready = false;
    /** @type {LogIndex} */
    const index = await api(`GET /jobs/${this.#job}/logs/index`, { query: filter });
    if (generation !== this.#generation) return;
    const seen = this.#end;
    this.#filter = filter;
    this.#folding = filter.logger == null ? this.#names : {};
    this.#held.clear();
    this.#reading.clear();
    this.#segments.clear();
    for (const [attempt, start, end, lines] of index.segments) this.#segments.add(attempt, start, end, lines);
    this.#end = position(index.end);
    this.counts = {
      lines: index.all_lines,
      levels: { ...index.levels },
      loggers: index.loggers,
    };
    this.#on.onCounts(this.counts);
    this.#on.onChange();
    if (this.#stop) await this.#catchUp(seen, generation);
    else this.#follow();
  }

  /**
   * The row with this number; undefined while it is read.
   *
   * @type {(number: number) => Row | undefined}
   */
  row(number) {
    const segment = this.#segments.with(number);
    if (!segment) return undefined;
    if (segment.note) return segment.note;
    const lines = this.#held.get(segment);
    if (!lines) {
      this.#read(segment);
      return undefined;
    }
    if (segment !== this.#segments.last) {
      this.#held.delete(segment); // so that it counts as used last
      this.#held.set(segment, lines);
    }
    return lines[number - segment.first];
  }

  /**
   * The number of the row at this position, or of the next one if there is none. Reads the segment first if its lines
   * are not held.
   *
   * @type {(id: PositionId) => Promise<number>}
   */
  async numberOf(id) {
    const wanted = position(id);
    const segment = this.#segments.at(wanted);
    if (!segment) return Math.max(0, this.count - 1);
    await this.#read(segment);
    const place = (this.#held.get(segment) ?? []).findIndex((line) => compare(position(line.id), wanted) >= 0);
    return segment.first + Math.max(0, place);
  }

  /**
   * As `numberOf`, for a line that must be visible: if it is folded, folding ends for all lines.
   *
   * @type {(id: PositionId) => Promise<number>}
   */
  async unfolded(id) {
    const number = await this.numberOf(id);
    const row = this.row(number);
    if (!row || !("folded" in row)) return number;
    this.#names = {};
    await this.load(this.#filter);
    return this.numberOf(id);
  }

  /**
   * The share of the rows before this position: from 0 to 1.
   *
   * @type {(place: Position) => number}
   */
  share(place) {
    return this.#segments.share(place, (segment) => this.#held.get(segment));
  }

  /** @type {(segment: Segment) => Promise<void> | undefined} */
  #read(segment) {
    if (this.#held.has(segment)) return Promise.resolve();
    if (!this.#reading.has(segment)) {
      const reading = this.#fetch(segment).finally(() => this.#reading.delete(segment));
      this.#reading.set(segment, reading);
      reading.catch((error) => this.#on.onError(error));
    }
    return this.#reading.get(segment);
  }

  /** @type {(segment: Segment) => Promise<void>} */
  async #fetch(segment) {
    const generation = this.#generation;
    const lines = await this.#lines(`${segment.attempt}-${segment.start}`, `${segment.attempt}-${segment.end}`);
    if (generation !== this.#generation) return;
    this.#hold(segment, lines);
    if (lines.length !== segment.lines) this.#segments.resize(segment, lines.length);
    this.#on.onChange();
  }

  /** @type {(from: PositionId, to: PositionId) => Promise<LogLine[]>} */
  async #lines(from, to) {
    /** @type {LogLine[]} */
    const lines = [];
    /** @type {PositionId | null} */
    let next = from;
    while (next) {
      const query = { ...this.#filter, from: next, to, limit: PAGE };
      /** @type {{ lines: LogLine[], next: PositionId | null }} */
      const page = await api(`GET /jobs/${this.#job}/logs/lines`, { query });
      for (const line of page.lines) push(lines, line, this.#folding);
      next = page.next;
    }
    return lines;
  }

  /** @type {(segment: Segment, lines: LogLine[]) => void} */
  #hold(segment, lines) {
    this.#held.set(segment, lines);
    for (const old of this.#held.keys()) {
      if (this.#held.size <= MOST_HELD) break;
      if (old !== this.#segments.last) this.#held.delete(old);
    }
  }

  // --- the live end

  #follow() {
    this.#stop = follow(`/jobs/${this.#job}/logs`, {
      after: this.end,
      onGreeting: ({ at }) => this.#catchUp(at ? position(at) : this.#end, this.#generation),
      onEvents: (events) => this.#take(events),
      onState: (state) => this.#on.onState(state),
    });
  }

  /**
   * Read the lines that were sent before this view joined the stream, then take those that came during the reading.
   *
   * @type {(until: Position, generation: number) => Promise<void>}
   */
  async #catchUp(until, generation) {
    this.#ready = false;
    for (let tries = 0; compare(this.#end, until) < 0 && tries < TRIES; tries += 1) {
      if (tries) await new Promise((resolve) => setTimeout(resolve, PATIENCE));
      const missed = await this.#lines(this.end, `${until[0]}-${until[1]}`).catch(() => []);
      if (generation !== this.#generation) return;
      for (const line of missed) this.#append(line);
      if (!missed.length && Object.keys(this.#filter).length) break;
    }
    this.#end = compare(this.#end, until) < 0 ? until : this.#end;
    this.#ready = true;
    const early = this.#early;
    this.#early = [];
    this.#take(early);
  }

  /** @type {(events: import("./streams.js").FollowedEvent[]) => void} */
  #take(events) {
    if (!this.#ready) {
      this.#early.push(...events);
      return;
    }
    for (const { name, id, data } of events) {
      if (name === "gap") this.#gap(JSON.parse(data));
      else if (name === "log") this.#new(id, data);
    }
    this.#on.onChange();
  }

  /** @type {(id: PositionId, data: string) => void} */
  #new(id, data) {
    const end = position(id);
    if (compare(end, this.#end) <= 0) return;
    /** @type {LogLine} */
    const line = JSON.parse(data);
    line.id = id;
    line.start = end[0] === this.#end[0] ? this.#end[1] : 0;
    line.logger = line.cont ? this.#last.logger : (line.logger ?? "");
    this.#last = line;
    this.counts.lines += 1;
    this.counts.levels[line.level] = (this.counts.levels[line.level] ?? 0) + 1;
    this.#on.onLine(line);
    const { level, logger } = this.#filter;
    if ((level && !atLeast(line.level, level)) || (logger != null && line.logger !== logger)) this.#end = end;
    else this.#append(line, end);
  }

  /** @type {(line: LogLine, place?: Position) => void} */
  #append(line, [attempt, end] = position(line.id)) {
    let segment = this.#segments.last;
    if (!segment?.isLive || segment.attempt !== attempt || segment.lines >= LIVE_LINES) {
      segment = this.#segments.add(attempt, line.start, end, 0);
      segment.isLive = true;
      this.#hold(segment, []);
    }
    segment.end = end;
    if (push(this.#held.get(segment) ?? [], line, this.#folding)) this.#segments.grow(segment);
    this.#end = [attempt, end];
  }

  /** @type {(gap: { from: PositionId, to: PositionId }) => void} */
  #gap({ from, to }) {
    this.#segments.note({ gap: [from, to] }, position(to)[0]);
    this.#end = position(to);
  }
}
