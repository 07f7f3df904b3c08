// One row of a log as an element, and a line's whole text in a dialog. Text of a spider is never treated as markup.
import { h } from "./dom.js";
import { jobPlaces } from "./job-places.js";
import { drawFold } from "./log-fold.js";
import { count, shown } from "./text.js";
import { pieces } from "./text-search.js";

const LONGEST = 2000;
const CLOCK = new Intl.DateTimeFormat("en-GB", {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  fractionalSecondDigits: 3,
});
/** @type {Map<Time, string>} */
const times = new Map();

/**
 * `09:00:01.250` in the user's zone. Kept by the second, because many lines have the same second.
 *
 * @type {(iso: Time) => string}
 */
function clock(iso) {
  if (!times.has(iso)) {
    if (times.size > 5000) times.clear();
    times.set(iso, CLOCK.format(new Date(iso)));
  }
  return times.get(iso) ?? "";
}

/**
 * @typedef {"cont" | "named" | "plain"} Kind of a line: it goes on with the one before it, or has a logger, or has none
 * @typedef {object} Parts
 * @property {HTMLElement} line
 * @property {Kind} kind
 * @property {HTMLElement} link
 * @property {Text} time
 * @property {Text} level
 * @property {HTMLElement} button
 * @property {Text} name
 * @property {HTMLElement} message
 * @property {Text} words
 * @property {HTMLElement} cell
 * @property {HTMLElement} [whole]
 * @property {HTMLElement | null} [places]
 */

/**
 * The parts of a line's element that are rewritten when it shows another line.
 *
 * @type {WeakMap<HTMLElement, Parts>}
 */
const written = new WeakMap();

/**
 * The element of a row of `LogRows`. `text` (in lower case) is marked where the message contains it. Reuses `element`
 * if that shows a line of the same kind, because making elements costs more than changing the words in them.
 *
 * @param {import("./log-rows.js").Row | undefined} row
 * @param {{ link: string, isCurrent: boolean, text: string }} how
 * @param {HTMLElement} [element]
 */
export function drawRow(row, { link, isCurrent, text }, element) {
  if (!row) return h("div", { class: "log-row log-unread", role: "row" }, h("span", { role: "cell" }, "…"));
  if ("attempt" in row) return note(`Attempt ${row.attempt}`);
  if ("gap" in row) return note("Older lines were removed");
  if (row.folded) return drawFold(row, isCurrent);
  const kind = row.cont ? "cont" : row.logger ? "named" : "plain";
  const known = element && written.get(element);
  const parts = known?.kind === kind ? known : blank(kind);
  const { line } = parts;
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
  parts.whole = cut ? whole(cut) : undefined;
  if (parts.whole) parts.cell.append(parts.whole);
  parts.places?.remove();
  parts.places = isCurrent ? jobPlaces(msg) : null;
  if (parts.places) parts.cell.append(parts.places);
  return line;
}

/**
 * The element of a line, without its words.
 *
 * @type {(kind: Kind) => Parts}
 */
function blank(kind) {
  const [time, level, name, words] = [new Text(), new Text(), new Text(), new Text()];
  const link = h("a", { tabindex: -1 }, time);
  const message = h("bdi", {}, words);
  const button = h("button", { type: "button", tabindex: -1 }, h("bdi", {}, name));
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
    h("span", { class: "log-logger", role: "cell" }, kind === "named" && button),
    cell,
  );
  /** @type {Parts} */
  const parts = { line, kind, link, time, level, button, name, message, words, cell };
  written.set(line, parts);
  return parts;
}

/** @type {(parts: Parts, logger: string) => void} */
function nameLogger({ button, name }, logger) {
  if (button.dataset.logger === logger) return;
  const short = shown(logger, 200);
  button.dataset.logger = logger;
  button.title = `Only ${short}`;
  put(name, short);
}

/** @type {(parts: Parts, msg: string, text: string) => void} */
function tell({ message, words }, msg, text) {
  if (text) {
    message.replaceChildren(...marked(msg, text));
    return;
  }
  put(words, msg);
  if (words.parentNode !== message || message.childNodes.length > 1) message.replaceChildren(words);
}

/**
 * Write into a text node, unless it has this text already.
 *
 * @type {(node: Text, text: string) => void}
 */
function put(node, text) {
  if (node.data !== text) node.data = text;
}

/** @type {(element: HTMLElement, name: string, value: string | null) => void} */
function set(element, name, value) {
  if (element.getAttribute(name) === value) return;
  if (value === null) element.removeAttribute(name);
  else element.setAttribute(name, value);
}

/** @type {(words: string) => HTMLElement} */
const note = (words) => h("div", { class: "log-row log-note", role: "row" }, h("span", { role: "cell" }, words));

/** @type {(length: number) => HTMLElement} */
const whole = (length) =>
  h(
    "button",
    { type: "button", class: "button small quiet", tabindex: -1, "data-whole": true },
    `Show all ${count(length)} characters`,
  );

/**
 * The pieces of `words`, with `<mark>` around each `text`.
 *
 * @type {(words: string, text: string) => (string | Node)[]}
 */
function marked(words, text) {
  return pieces(words, text).map((piece, place) => (place % 2 ? h("mark", {}, piece) : piece));
}

/**
 * A dialog with a long text.
 *
 * @type {(title: string, text: string) => void}
 */
export function showText(title, text) {
  const close = h("button", { type: "button", class: "button", autofocus: true }, "Close");
  const dialog = h(
    "dialog",
    { class: "log-whole", "aria-label": title },
    h("div", { class: "card-head" }, h("h2", {}, title), close),
    h("pre", { tabindex: 0, "aria-label": "Full line" }, shown(text, Infinity)),
  );
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
