// One row of a log as an element, and a line's whole text in a dialog. What a spider has written is text, never markup.
import { count, h, shown } from "./text.js";

const LONGEST = 2000;
const CLOCK = new Intl.DateTimeFormat("en-GB", {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  fractionalSecondDigits: 3,
});
const times = new Map();

/** `09:00:01.250` in the user's zone. The same second comes often. */
function clock(iso) {
  if (!times.has(iso)) {
    if (times.size > 5000) times.clear();
    times.set(iso, CLOCK.format(new Date(iso)));
  }
  return times.get(iso);
}

/** Of each line's element: what is written anew when it stands for another line. */
const written = new WeakMap();

/**
 * `row` as `LogRows` has it; `text` (in lower case) is marked where the message has it. Returns `element` if that is of
 * a line of the same kind: to make elements costs more than to change the words in them.
 */
export function drawRow(row, { link, isCurrent, text }, element) {
  if (!row) return h("div", { class: "log-row log-unread", role: "row" }, h("span", { role: "cell" }, "…"));
  if (row.attempt) return note(`Attempt ${row.attempt}`);
  if (row.gap) return note("Older lines were removed here");
  const kind = row.cont ? "cont" : row.logger ? "named" : "plain";
  const line = written.get(element)?.kind === kind ? element : blank(kind);
  const parts = written.get(line);
  const { level, msg, length } = row;
  set(line, "data-level", level);
  set(line, "aria-current", isCurrent ? "true" : null);
  set(parts.link, "href", link);
  set(parts.link, "title", `${row.ts ?? ""} ${row.id}`);
  put(parts.time, row.ts ? clock(row.ts) : "·");
  put(parts.level, level);
  if (kind === "named") nameLogger(parts, row.logger);
  tell(parts, shown(msg, LONGEST), text);
  const cut = length ?? (msg.length > LONGEST ? msg.length : undefined);
  parts.whole?.remove();
  parts.whole = cut && whole(cut);
  if (parts.whole) parts.cell.append(parts.whole);
  return line;
}

/** The element of a line, without its words. */
function blank(kind) {
  const [time, level, name, words] = ["", "", "", ""].map((text) => new Text(text));
  const link = h("a", { tabindex: -1 }, time);
  const message = h("bdi", {}, words);
  const button = kind === "named" && h("button", { type: "button", tabindex: -1 }, h("bdi", {}, name));
  const cell = h("span", { class: "log-text", role: "cell" }, message);
  const line = h(
    "div",
    { class: kind === "cont" ? "log-row log-cont" : "log-row", role: "row" },
    h("span", { class: "log-time", role: "cell" }, link),
    h(
      "span",
      { class: "log-level", role: "cell" },
      kind === "cont" ? h("span", { class: "visually-hidden" }, level) : level,
    ),
    h("span", { class: "log-logger", role: "cell" }, button),
    cell,
  );
  written.set(line, { kind, link, time, level, button, name, message, words, cell });
  return line;
}

function nameLogger({ button, name }, logger) {
  if (button.dataset.logger === logger) return;
  const short = shown(logger, 200);
  button.dataset.logger = logger;
  button.title = `Only ${short}`;
  put(name, short);
}

function tell({ message, words }, msg, text) {
  if (text) return message.replaceChildren(...marked(msg, text));
  put(words, msg);
  if (words.parentNode !== message || message.childNodes.length > 1) message.replaceChildren(words);
  return undefined;
}

/** Write into a text node, unless that stands there. */
function put(node, text) {
  if (node.data !== text) node.data = text;
}

function set(element, name, value) {
  if (element.getAttribute(name) === value) return;
  if (value === null) element.removeAttribute(name);
  else element.setAttribute(name, value);
}

const note = (words) => h("div", { class: "log-row log-note", role: "row" }, h("span", { role: "cell" }, words));

const whole = (length) =>
  h(
    "button",
    { type: "button", class: "button small quiet", tabindex: -1, "data-whole": true },
    `Show all ${count(length)} characters`,
  );

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
  const close = h(
    "button",
    { type: "button", class: "button", autofocus: true, onclick: () => dialog.close() },
    "Close",
  );
  const dialog = h(
    "dialog",
    { class: "log-whole", "aria-label": title, onclose: () => dialog.remove() },
    h("div", { class: "card-head" }, h("h2", {}, title), close),
    h("pre", { tabindex: 0, "aria-label": "The whole line" }, shown(text, Infinity)),
  );
  document.body.append(dialog);
  dialog.showModal();
}
