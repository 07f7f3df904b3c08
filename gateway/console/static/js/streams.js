// The door to the event streams. A browser opens six connections to a host, for all tabs together, so all tabs share
// one stream for each path: a worker holds it; where there are no shared workers, one of the tabs does.
import { api, SESSION } from "./api.js";
import { suspect } from "./connection.js";
import { Hub } from "./stream-hub.js";

/** The id of this session, so that data of one user is not shown to the next user of this browser. */
const CHANNEL = `discoverybot-streams-${SESSION}`;
/** The id of this tab. A stream's holder waits for this lock to learn that the tab is gone. */
const MEMBER = `${CHANNEL}-${Math.random().toString(36).slice(2)}`;

/**
 * @typedef {import("./stream-hub.js").State} State
 * @typedef {import("./stream-hub.js").Greeting} Greeting
 * @typedef {import("./stream-hub.js").Said} Said
 * @typedef {import("./stream-hub.js").Told} Told
 * @typedef {import("./stream-hub.js").Member} Member
 * @typedef {(message: Said) => void} Speak
 * @typedef {{ name: string, id: string, data: string }} FollowedEvent
 * @typedef {object} Hooks
 * @property {(greeting: { at: string | undefined, state: State }) => void} onGreeting
 * @property {(events: FollowedEvent[]) => void} onEvents
 * @property {(state: State) => void} onState
 * @typedef {Hooks & { last: string | undefined, isGreeted: boolean }} Listener
 */

/**
 * Followed paths, each with its listeners by key.
 *
 * @type {Map<string, Map<number, Listener>>}
 */
const followed = new Map();
let keys = 0;
/** @type {Speak | undefined} */
let say;

/**
 * Follow `path`, such as `/events` or `/jobs/{id}/logs`. Returns a function that ends the following.
 *
 * `after` is the position from which a stream that nobody follows yet begins; without it a log comes from its first
 * line on. `onGreeting({at, state})` is called first: `at` is how far the stream is. The events between `after` and
 * `at` are over; only the newest one of each kind is passed on. Then `onEvents` takes lists of
 * `{name, id, data}`, with `data` as text, and `onState` "connecting", "open", "lost" (it comes back), "waiting" (more streams are followed than
 * a browser may open: those that are looked at go first) or "over".
 *
 * @param {string} path
 * @param {Partial<Hooks> & { after?: string | undefined }} hooks
 */
export function follow(path, { after, onGreeting = () => {}, onEvents = () => {}, onState = () => {} }) {
  say ??= connect();
  const key = ++keys;
  const listener = { onGreeting, onEvents, onState, last: after, isGreeted: false };
  const known = followed.get(path) ?? new Map();
  followed.set(path, known.set(key, listener));
  say({ type: "follow", path, key, after });
  return () => {
    const listeners = followed.get(path);
    if (!listeners?.delete(key) || listeners.size) return;
    followed.delete(path);
    say?.({ type: "leave", path });
  };
}

/** @type {(told: Told) => void} */
function hear(told) {
  if (told.type === "refused") return askWhy();
  const listeners = followed.get(told.path);
  if (!listeners) return;
  if (told.type === "state" && told.state === "lost") suspect();
  if (told.type === "greeting") greet(listeners.get(told.key), told);
  for (const listener of listeners.values()) {
    if (!listener.isGreeted) continue;
    if (told.type === "state") listener.onState(told.state);
    if (told.type === "events") hand(listener, told.events);
  }
}

/** Call the API, so that the page goes to the form for signing in if the session is over or another user's. */
function askWhy() {
  if (SESSION) api("GET /session").catch(() => {});
}

/** @type {(listener: Listener | undefined, greeting: Greeting) => void} */
function greet(listener, { at, state, events }) {
  if (!listener) return;
  listener.isGreeted = true;
  listener.onGreeting({ at, state });
  listener.onState(state);
  if (events.length) hand(listener, events);
}

/** @type {(listener: Listener, events: Greeting["events"]) => void} */
function hand(listener, events) {
  for (const [, id] of events) if (id) listener.last = id;
  listener.onEvents(events.map(([name, id, data]) => ({ name, id, data })));
}

/** How this tab speaks to the tab or the worker that holds the streams. */
function connect() {
  const speak = transport();
  const look = () => speak({ type: "look", isVisible: !document.hidden });
  document.addEventListener("visibilitychange", look);
  look();
  addEventListener("pagehide", () => speak({ type: "bye" }));
  addEventListener("pageshow", ({ persisted }) => persisted && followAgain(speak));
  return speak;
}

/** Resolves when this tab holds its lock, which it does until it is gone. */
function holding() {
  /** @type {Promise<void>} */
  const held = new Promise((resolve) => {
    navigator.locks.request(MEMBER, () => {
      resolve();
      return new Promise(() => {});
    });
  });
  return held;
}

/** @type {() => Speak} */
function transport() {
  if ("SharedWorker" in self) return byWorker();
  return navigator.locks && "BroadcastChannel" in self ? byElection() : alone();
}

/** @type {() => Speak} */
function byWorker() {
  const worker = new SharedWorker(new URL("stream-worker.js", import.meta.url), { type: "module", name: CHANNEL });
  worker.port.onmessage = ({ data }) => hear(data);
  if (navigator.locks) holding().then(() => worker.port.postMessage({ type: "hello", lock: MEMBER }));
  return (message) => worker.port.postMessage(message);
}

/** @type {() => Speak} */
function alone() {
  const hub = new Hub(SESSION);
  return (message) => hub.hear(SELF, message);
}

/**
 * This tab, where it holds the streams itself.
 *
 * @type {Member}
 */
const SELF = { send: (message) => hear(message) };

/**
 * The tab that gets the lock holds the streams; when it is gone another one gets it, and all follow again there.
 *
 * @type {() => Speak}
 */
function byElection() {
  const channel = new BroadcastChannel(CHANNEL);
  /** @type {Map<string, Member>} */
  const members = new Map();
  /** @type {Hub | undefined} */
  let hub;
  /** @type {(hub: Hub, from: string) => Member} */
  const others = (hub, from) => {
    const known = members.get(from);
    if (known) return known;
    /** @type {Member} */
    const member = { send: (message) => channel.postMessage({ ...message, to: from }) };
    members.set(from, member);
    navigator.locks.request(from, () => {
      hub.hear(member, { type: "bye" });
      members.delete(from);
    });
    return member;
  };
  const held = holding();
  /** @type {Speak} */
  const speak = (message) => {
    if (hub) hub.hear(SELF, message);
    else held.then(() => channel.postMessage({ ...message, from: MEMBER }));
  };
  channel.onmessage = ({ data }) => {
    if (data.to === MEMBER) hear(data);
    else if (data.type === "elected") followAgain(speak);
    else if (data.from && hub) hub.hear(others(hub, data.from), data);
  };
  navigator.locks.request(CHANNEL, () => {
    hub = new Hub(SESSION);
    channel.postMessage({ type: "elected" });
    followAgain(speak);
    return new Promise(() => {});
  });
  return speak;
}

/**
 * Each listener goes on behind what it has seen.
 *
 * @param {Speak} speak
 */
function followAgain(speak) {
  speak({ type: "look", isVisible: !document.hidden });
  for (const [path, listeners] of followed) {
    for (const [key, { last }] of listeners) speak({ type: "follow", path, key, after: last });
  }
}
