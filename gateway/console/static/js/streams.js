// The door to the event streams. A browser opens six connections to a host, for all tabs together, so all tabs share
// one stream for each path: a worker holds it; where there are no shared workers, one of the tabs does.
import { api, SESSION } from "./api.js";
import { Hub } from "./stream-hub.js";

/** Of this session: what is kept for one user is not for the next one at this browser. */
const CHANNEL = `discoverybot-streams-${SESSION}`;
/** Of this tab. A stream's holder waits for this lock to learn that the tab is gone. */
const MEMBER = `${CHANNEL}-${Math.random().toString(36).slice(2)}`;

/** Followed paths, each with its listeners by key. */
const followed = new Map();
let keys = 0;
let say;

/**
 * Follow `path`, such as `/events` or `/jobs/{id}/logs`. Returns a function that ends it.
 *
 * `after` is the position from which a stream that nobody follows yet begins; without it a log comes from its first
 * line on. `onGreeting({at, state})` comes first: `at` is how far the stream is; what lies between `after` and `at`
 * has gone by already. With it comes, of each kind, the newest event that has gone by. Then `onEvents` takes lists of
 * `{name, id, data}`, with `data` as text, and `onState` "connecting", "open", "lost" (it comes back), "waiting" (more streams are followed than
 * a browser may open: those that are looked at go first) or "over".
 */
export function follow(path, { after, onGreeting = () => {}, onEvents = () => {}, onState = () => {} }) {
  say ??= connect();
  const key = ++keys;
  const listener = { onGreeting, onEvents, onState, last: after, isGreeted: false };
  if (!followed.has(path)) followed.set(path, new Map());
  followed.get(path).set(key, listener);
  say({ type: "follow", path, key, after });
  return () => {
    const listeners = followed.get(path);
    if (!listeners?.delete(key) || listeners.size) return;
    followed.delete(path);
    say({ type: "leave", path });
  };
}

function hear({ type, path, key, at, state, events = [] }) {
  if (type === "refused") return askWhy();
  const listeners = followed.get(path);
  if (!listeners) return;
  if (type === "greeting") greet(listeners.get(key), { at, state, events });
  for (const listener of listeners.values()) {
    if (!listener.isGreeted) continue;
    if (type === "state") listener.onState(state);
    if (type === "events") hand(listener, events);
  }
}

/** Where the session is over, or another's, the page leads to the form that begins one. */
function askWhy() {
  if (SESSION) api("GET /session").catch(() => {});
}

function greet(listener, { at, state, events }) {
  if (!listener) return;
  listener.isGreeted = true;
  listener.onGreeting({ at, state });
  listener.onState(state);
  if (events.length) hand(listener, events);
}

function hand(listener, events) {
  for (const [, id] of events) if (id) listener.last = id;
  listener.onEvents(events.map(([name, id, data]) => ({ name, id, data })));
}

/** How this tab speaks to whatever holds the streams. */
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
  return new Promise((resolve) => {
    navigator.locks.request(MEMBER, () => {
      resolve();
      return new Promise(() => {});
    });
  });
}

function transport() {
  if ("SharedWorker" in self) return byWorker();
  return navigator.locks && "BroadcastChannel" in self ? byElection() : alone();
}

function byWorker() {
  const worker = new SharedWorker(new URL("stream-worker.js", import.meta.url), { type: "module", name: CHANNEL });
  worker.port.onmessage = ({ data }) => hear(data);
  if (navigator.locks) holding().then(() => worker.port.postMessage({ type: "hello", lock: MEMBER }));
  return (message) => worker.port.postMessage(message);
}

function alone() {
  const hub = new Hub(SESSION);
  return (message) => hub.hear(SELF, message);
}

/** This tab, where it holds the streams itself. */
const SELF = { send: (message) => hear(message) };

/** The tab that gets the lock holds the streams; when it is gone another one gets it, and all follow again there. */
function byElection() {
  const channel = new BroadcastChannel(CHANNEL);
  const members = new Map();
  let hub;
  const others = (from) => {
    if (!members.has(from)) {
      members.set(from, { send: (message) => channel.postMessage({ ...message, to: from }) });
      navigator.locks.request(from, () => {
        hub.hear(members.get(from), { type: "bye" });
        members.delete(from);
      });
    }
    return members.get(from);
  };
  const held = holding();
  const speak = (message) => {
    if (hub) hub.hear(SELF, message);
    else held.then(() => channel.postMessage({ ...message, from: MEMBER }));
  };
  channel.onmessage = ({ data }) => {
    if (data.to === MEMBER) hear(data);
    else if (data.type === "elected") followAgain(speak);
    else if (data.from && hub) hub.hear(others(data.from), data);
  };
  navigator.locks.request(CHANNEL, () => {
    hub = new Hub(SESSION);
    channel.postMessage({ type: "elected" });
    followAgain(speak);
    return new Promise(() => {});
  });
  return speak;
}

/** Each listener goes on behind what it has seen. */
function followAgain(speak) {
  speak({ type: "look", isVisible: !document.hidden });
  for (const [path, listeners] of followed) {
    for (const [key, { last }] of listeners) speak({ type: "follow", path, key, after: last });
  }
}
