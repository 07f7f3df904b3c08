// One `EventSource` for each followed path, for any number of tabs. It belongs to a worker, or to one elected tab.
//
// A browser opens six connections to a host, and pages need some of them: when more paths are followed than may be
// open, paths of visible tabs go first, and take turns. A stream that was closed meanwhile goes on where it was.

/** Streams that are open at the same time. */
const MOST_OPEN = 4;
/** Milliseconds after which a waiting stream has its turn, if more are followed than may be open. */
const TURN = 3000;

/** Milliseconds. Events are handed on together, so long after the first of them. */
const PACE = 50;
/** The same while many events come, because each time costs the pages a task, however little they have to do. */
const BUSY = 200;
const MANY = 50;
/** Kinds of events of which the newest one of each job is kept, for tabs that come later. */
const KINDS = ["snapshot", "job", "status", "progress", "end"];
const MOST_KEPT = 2000;
/** Milliseconds until a stream that the server refused is requested again: at first, and at most. */
const FIRST_PAUSE = 1000;
const LONGEST_PAUSE = 30_000;

/**
 * Messages from a tab, and messages to it; an event is [kind, id, data].
 *
 * @typedef {[kind: string, id: string, data: string]} StreamEvent
 * @typedef {"connecting" | "open" | "lost" | "waiting" | "over"} State
 * @typedef {{ type: "follow", path: string, key: number, after: string | undefined }
 *   | { type: "leave", path: string }
 *   | { type: "look", isVisible: boolean }
 *   | { type: "bye" }} Said
 * @typedef {{ at: string | undefined, state: State, events: StreamEvent[] }} Greeting
 * @typedef {{ type: "greeting", path: string, key: number } & Greeting
 *   | { type: "events", path: string, events: StreamEvent[] }
 *   | { type: "state", path: string, state: State }
 *   | { type: "refused" }} Told
 * @typedef {{ send: (message: Told) => void, isVisible?: boolean }} Member
 */

/** A stream that somebody follows. `send` of each member takes `{type, path, …}`; see `streams.js`. */
class Stream {
  #path;
  #session;
  /** @type {Set<Member>} */
  #members = new Set();
  /** @type {EventSource | undefined} */
  #source;
  /** @type {State} */
  #state = "connecting";
  #at;
  /** @type {Map<string, StreamEvent>} */
  #latest = new Map();
  /** @type {StreamEvent[]} */
  #waiting = [];
  /** @type {number | undefined} */
  #timer;
  #pace = PACE;
  /** @type {number | undefined} */
  #again;
  #pause = FIRST_PAUSE;
  /** When the stream began to wait, or was opened. The one that has waited longest goes first. */
  since = performance.now();

  /**
   * @param {string} path
   * @param {string | undefined} after
   * @param {string} session
   */
  constructor(path, after, session) {
    this.#path = path;
    this.#session = session;
    this.#at = after;
  }

  get isFollowed() {
    return this.#members.size > 0;
  }

  get isOver() {
    return this.#state === "over";
  }

  get isOpen() {
    return this.#source !== undefined;
  }

  /** How urgent the stream is: 2 for `/events`, which all pages need, 1 if a visible tab follows it, otherwise 0. */
  get rank() {
    if (this.#path.startsWith("/events")) return 2;
    return [...this.#members].some((member) => member.isVisible) ? 1 : 0;
  }

  wake() {
    if (this.isOpen || this.isOver) return;
    this.since = performance.now();
    this.#become("connecting");
    this.#open();
  }

  rest() {
    if (!this.isOpen) return;
    this.since = performance.now();
    this.close();
    this.#become("waiting");
  }

  /** @type {(member: Member, key: number) => void} */
  add(member, key) {
    this.#flush(); // events that have come before are for the other tabs
    this.#members.add(member);
    const events = [...this.#latest.values()];
    member.send({ type: "greeting", path: this.#path, key, at: this.#at, state: this.#state, events });
  }

  /** @type {(member: Member) => void} */
  remove(member) {
    this.#members.delete(member);
  }

  close() {
    clearTimeout(this.#again);
    this.#source?.close();
    this.#source = undefined;
    this.#flush();
  }

  #open() {
    const url = new URL(this.#path, self.location.origin);
    if (this.#session) url.searchParams.set("session", this.#session);
    if (this.#at) url.searchParams.set("last_event_id", this.#at);
    const source = new EventSource(url);
    this.#source = source;
    source.onopen = () => {
      this.#pause = FIRST_PAUSE;
      this.#become("open");
    };
    source.onerror = () => this.#broken();
    for (const kind of [...KINDS, "log", "gap"]) source.addEventListener(kind, (event) => this.#take(kind, event));
  }

  /** The browser comes back by itself after a break, and gives up where the server refuses it. */
  #broken() {
    this.#become("lost");
    if (this.#source?.readyState !== EventSource.CLOSED) return;
    for (const member of this.#members) member.send({ type: "refused" });
    this.#again = setTimeout(() => this.#open(), this.#pause);
    this.#pause = Math.min(this.#pause * 2, LONGEST_PAUSE);
  }

  /** @type {(kind: string, event: MessageEvent<string>) => void} */
  #take(kind, { lastEventId, data }) {
    if (lastEventId) this.#at = lastEventId;
    /** @type {StreamEvent} */
    const event = [kind, lastEventId, data];
    if (KINDS.includes(kind)) this.#keep(kind, data, event);
    this.#waiting.push(event);
    this.#timer ??= setTimeout(() => this.#flush(), this.#pace);
    if (kind !== "end") return;
    this.close();
    this.#become("over");
  }

  /** @type {(kind: string, data: string, event: StreamEvent) => void} */
  #keep(kind, data, event) {
    if (kind === "snapshot") this.#latest.clear(); // a snapshot contains what the kept events say
    const job = JSON.parse(data).job_id;
    const key = this.#path.startsWith("/events") && job ? `${kind} ${job}` : kind;
    this.#latest.delete(key); // so that the newest one comes last
    this.#latest.set(key, event);
    if (this.#latest.size > MOST_KEPT)
      this.#latest.delete([...this.#latest.keys()].find((one) => one !== "snapshot") ?? "");
  }

  #flush() {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (!this.#waiting.length) return;
    const events = this.#waiting;
    this.#waiting = [];
    this.#pace = events.length < MANY ? PACE : BUSY;
    for (const member of this.#members) member.send({ type: "events", path: this.#path, events });
  }

  /** @type {(state: State) => void} */
  #become(state) {
    this.#flush();
    if (state === this.#state) return;
    this.#state = state;
    for (const member of this.#members) member.send({ type: "state", path: this.#path, state });
  }
}

export class Hub {
  /** @type {Map<string, Stream>} */
  #streams = new Map();
  #session;
  /** @type {number | undefined} */
  #turn;

  /**
   * `session` is the id of the one that the tabs belong to; empty where there are no sessions.
   *
   * @param {string} session
   */
  constructor(session) {
    this.#session = session;
  }

  /**
   * Handle a message of a tab: it follows a path or stops following, is visible or hidden, or is gone.
   *
   * @type {(member: Member, said: Said) => void}
   */
  hear(member, said) {
    if (said.type === "follow") this.#follow(member, said);
    else if (said.type === "leave") this.#leave(member, said.path);
    else if (said.type === "look") member.isVisible = said.isVisible;
    else for (const known of [...this.#streams.keys()]) this.#leave(member, known);
    this.#balance();
  }

  /** @type {(member: Member, said: Extract<Said, { type: "follow" }>) => void} */
  #follow(member, { path, key, after }) {
    const stream = this.#streams.get(path) ?? new Stream(path, after, this.#session);
    this.#streams.set(path, stream);
    stream.add(member, key);
  }

  /** @type {(member: Member, path: string) => void} */
  #leave(member, path) {
    const stream = this.#streams.get(path);
    stream?.remove(member);
    if (!stream || stream.isFollowed) return;
    stream.close();
    this.#streams.delete(path);
  }

  #balance() {
    const streams = [...this.#streams.values()].sort(
      (a, b) => b.rank - a.rank || Number(b.isOpen) - Number(a.isOpen) || a.since - b.since,
    );
    for (const stream of streams.slice(MOST_OPEN)) stream.rest();
    for (const stream of streams.slice(0, MOST_OPEN)) stream.wake();
    this.#turn ??= setTimeout(() => this.#takeTurns(), TURN);
  }

  /** The most urgent waiting stream takes the place of the one that is open for longest and no more urgent. */
  #takeTurns() {
    this.#turn = undefined;
    const streams = [...this.#streams.values()].sort((a, b) => a.since - b.since);
    const next = streams.filter(({ isOpen, isOver }) => !isOpen && !isOver).sort((a, b) => b.rank - a.rank)[0];
    if (!next) return;
    const open = streams.filter(({ isOpen, rank }) => isOpen && rank <= Math.min(next.rank, 1));
    if (open[0]) {
      open[0].rest();
      next.wake();
    }
    this.#turn = setTimeout(() => this.#takeTurns(), TURN);
  }
}
