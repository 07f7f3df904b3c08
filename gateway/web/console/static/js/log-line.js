// One row of a log as an element, and a line's whole text in a dialog. What a spider has written is text, never markup.
import { count, h, shown } from "./text.js";

const LONGEST = 2000;
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3 });
const times = new Map();

/** `09:00:01.250` in the user's zone. The same second comes often. */
function clock(iso) {
  if (!times.has(iso)) {
    if (times.size > 5000) times.clear();
    times.set(iso, CLOCK.format(new Date(iso)));
  }
  return times.get(iso);
}

/** `row` as `LogRows` has it; `text` (in lower case) is marked where the message has it. */
export function drawRow(row, { link, isCurrent, text }) {
  if (!row) return h("div", { class: "log-row log-unread", role: "row" }, h("span", { role: "cell" }, "…"));
  if (row.attempt) return note(`Attempt ${row.attempt}`);
  if (row.gap) return note("Older lines were removed here");
  const { level, msg, length } = row;
  const cut = length ?? (msg.length > LONGEST ? msg.length : undefined);
  return h(
    "div",
    { class: row.cont ? "log-row log-cont" : "log-row", role: "row", "data-level": level, "aria-current": isCurrent ? "true" : null },
    h("span", { class: "log-time", role: "cell" }, h("a", { href: link, tabindex: -1, title: `${row.ts ?? ""} ${row.id}` }, row.ts ? clock(row.ts) : "·")),
    h("span", { class: "log-level", role: "cell" }, row.cont ? h("span", { class: "visually-hidden" }, level) : level),
    row.cont ? h("span", { class: "log-logger", role: "cell" }) : logger(row.logger),
    h("span", { class: "log-text", role: "cell" }, h("bdi", {}, ...marked(shown(msg, LONGEST), text)), cut && whole(cut)),
  );
}

const note = (words) => h("div", { class: "log-row log-note", role: "row" }, h("span", { role: "cell" }, words));

const whole = (length) =>
  h("button", { type: "button", class: "button small quiet", tabindex: -1, "data-whole": true }, `Show all ${count(length)} characters`);

function logger(name = "") {
  const short = shown(name, 200);
  return h("span", { class: "log-logger", role: "cell" }, name && h("button", { type: "button", tabindex: -1, "data-logger": name, title: `Only ${short}` }, h("bdi", {}, short)));
}

/** The pieces of `words`, with `<mark>` around each `text`. */
function marked(words, text) {
  const lower = text ? words.toLowerCase() : "";
  if (!text || lower.length !== words.length) return [words];
  const pieces = [];
  let from = 0;
  for (let at = lower.indexOf(text); at >= 0 && pieces.length < 200; at = lower.indexOf(text, from)) {
    pieces.push(words.slice(from, at), h("mark", {}, words.slice(at, at + text.length)));
    from = at + text.length;
  }
  return [...pieces, words.slice(from)];
}

/** A dialog with a long text. */
export function showText(title, text) {
  const close = h("button", { type: "button", class: "button", autofocus: true, onclick: () => dialog.close() }, "Close");
  const dialog = h(
    "dialog", { class: "log-whole", "aria-label": title, onclose: () => dialog.remove() },
    h("div", { class: "card-head" }, h("h2", {}, title), close),
    h("pre", { tabindex: 0, "aria-label": "The whole line" }, shown(text, Infinity)),
  );
  document.body.append(dialog);
  dialog.showModal();
}
