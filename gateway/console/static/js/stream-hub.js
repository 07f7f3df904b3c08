// One `EventSource` for each followed path, for any number of tabs. A worker has it, or the tab that was elected.
//
// A browser opens six connections to a host, and pages need some of them: when more paths are followed than may be
// open, those that are looked at go first, and take turns. A stream that rested goes on where it was.

/** Streams that are open at the same time. */
const MOST_OPEN = 4;
/** Milliseconds after which one that waits has its turn, where more are followed than may be open. */
const TURN = 3000;

/** Events are handed on together, so many milliseconds after the first of them. */
const PACE = 50;
/** And so many while many come: each time costs the pages a task, however little they then do. */
const BUSY = 200;
const MANY = 50;
/** Events kept for those who come later: of each kind and job the newest one. */
const KINDS = ["snapshot", "job", "status", "progress", "end"];
const MOST_KEPT = 2000;
/** Milliseconds until a stream that the server refused is asked for again: at first, and at most. */
const FIRST_PAUSE = 1000;
const LONGEST_PAUSE = 30_000;

/** A stream that somebody follows. `send` of each member takes `{type, path, …}`; see `streams.js`. */
class Stream {
  #path;
  #session;
  #members = new Set();
  #source;
  #state = "connecting";
  #at;
  #latest = new Map();
  #waiting = [];
  #timer;
  #pace = PACE;
  #again;
  #pause = FIRST_PAUSE;
  /** When it began to wait, or to be open: who has waited longest goes first. */
  since = performance.now();

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

  /** Whether somebody looks at it. `/events` is for all pages. */
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

  add(member, key) {
    this.#flush(); // what has come before belongs to the others
    this.#members.add(member);
    const events = [...this.#latest.values()];
    member.send({ type: "greeting", path: this.#path, key, at: this.#at, state: this.#state, events });
  }

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
    if (this.#source.readyState !== EventSource.CLOSED) return;
    for (const member of this.#members) member.send({ type: "refused" });
    this.#again = setTimeout(() => this.#open(), this.#pause);
    this.#pause = Math.min(this.#pause * 2, LONGEST_PAUSE);
  }

  #take(kind, { lastEventId, data }) {
    if (lastEventId) this.#at = lastEventId;
    const event = [kind, lastEventId, data];
    if (KINDS.includes(kind)) this.#keep(kind, data, event);
    this.#waiting.push(event);
    this.#timer ??= setTimeout(() => this.#flush(), this.#pace);
    if (kind !== "end") return;
    this.close();
    this.#become("over");
  }

  #keep(kind, data, event) {
    if (kind === "snapshot") this.#latest.clear(); // it says the same and more
    const job = JSON.parse(data).job_id;
    const key = this.#path.startsWith("/events") && job ? `${kind} ${job}` : kind;
    this.#latest.delete(key); // so that the newest one comes last
    this.#latest.set(key, event);
    if (this.#latest.size > MOST_KEPT)
      this.#latest.delete([...this.#latest.keys()].find((one) => one !== "snapshot"));
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

  #become(state) {
    this.#flush();
    if (state === this.#state) return;
    this.#state = state;
    for (const member of this.#members) member.send({ type: "state", path: this.#path, state });
  }
}

export class Hub {
  #streams = new Map();
  #session;
  #turn;

  /** `session` is the id of the one that the tabs belong to; empty where there are no sessions. */
  constructor(session) {
    this.#session = session;
  }

  /** Take what a tab says: which path it follows, or no more, whether it is looked at, or that it is gone. */
  hear(member, { type, path, key, after, isVisible }) {
    if (type === "follow") this.#follow(member, path, key, after);
    else if (type === "leave") this.#leave(member, path);
    else if (type === "look") member.isVisible = isVisible;
    else if (type === "bye") for (const known of [...this.#streams.keys()]) this.#leave(member, known);
    this.#balance();
  }

  #follow(member, path, key, after) {
    if (!this.#streams.has(path)) this.#streams.set(path, new Stream(path, after, this.#session));
    this.#streams.get(path).add(member, key);
  }

  #leave(member, path) {
    const stream = this.#streams.get(path);
    stream?.remove(member);
    if (!stream || stream.isFollowed) return;
    stream.close();
    this.#streams.delete(path);
  }

  #balance() {
    const streams = [...this.#streams.values()].sort(
      (a, b) => b.rank - a.rank || b.isOpen - a.isOpen || a.since - b.since,
    );
    for (const stream of streams.slice(MOST_OPEN)) stream.rest();
    for (const stream of streams.slice(0, MOST_OPEN)) stream.wake();
    this.#turn ??= setTimeout(() => this.#takeTurns(), TURN);
  }

  /** The one that has waited longest takes the place of the one that has been open for longest, if that one matters no more. */
  #takeTurns() {
    this.#turn = undefined;
    const streams = [...this.#streams.values()].sort((a, b) => a.since - b.since);
    const next = streams.filter(({ isOpen, isOver }) => !isOpen && !isOver).sort((a, b) => b.rank - a.rank)[0];
    if (!next) return;
    const open = streams.filter(({ isOpen, rank }) => isOpen && rank <= Math.min(next.rank, 1));
    if (open.length) {
      open[0].rest();
      next.wake();
    }
    this.#turn = setTimeout(() => this.#takeTurns(), TURN);
  }
}
