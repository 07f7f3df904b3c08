// Values that a spider has scraped, as elements: short in a cell, whole as a tree.
import { h } from "./dom.js";
import { isNested, isObject, isRaw } from "./record.js";
import { count, shown } from "./text.js";
import { time } from "./times.js";

/** Characters from which on a text needs a wide column. */
const LONG = 24;
/** Characters of a text in a cell, and in a tree until somebody asks for all of it. */
const IN_CELL = 160;
const IN_TREE = 2000;
/** Entries of a list or an object that are shown at a time. */
const ENTRIES = 100;
/** How deep a tree is open at first. */
const OPEN_DEPTH = 2;
const LONGEST_ADDRESS = 2083;

/**
 * The text of a value in a table's cell.
 *
 * @type {(value: unknown) => Child}
 */
export function cell(value) {
  if (value === undefined) return "";
  if (isNested(value)) return folded(value, preview(value));
  return scalar(value, IN_CELL);
}

/** @type {(value: unknown, limit: number) => Node | string} */
function scalar(value, limit) {
  if (value === null) return h("span", { class: "muted" }, "null");
  if (isRaw(value)) return value.rawJSON;
  if (typeof value !== "string") return String(value);
  const address = webAddress(value);
  const text = h("bdi", { class: value.length > LONG ? "long" : null }, shown(value, limit));
  return address ? h("a", { href: address, target: "_blank", rel: "noreferrer noopener nofollow" }, text) : text;
}

/**
 * The address that a text is; undefined for anything but http and https.
 *
 * @type {(text: string) => string | undefined}
 */
function webAddress(text) {
  if (text.length > LONGEST_ADDRESS || !/^https?:\/\/[^\s]+$/i.test(text)) return undefined;
  return URL.canParse(text) ? new URL(text).href : undefined;
}

/**
 * A summary of a list or an object in one line.
 *
 * @type {(value: unknown[] | Record<string, unknown>) => string}
 */
function preview(value) {
  /** @type {[name: string, value: unknown][]} */
  const entries = Array.isArray(value) ? value.map((one) => ["", one]) : Object.entries(value);
  const words = entries.slice(0, 8).map(([name, one]) => (name ? `${name}: ${inWords(one)}` : inWords(one)));
  const text = shown(words.join(", "), IN_CELL / 2);
  const more = entries.length > 8 && !text.endsWith("…") ? ", …" : "";
  return Array.isArray(value) ? `[${text}${more}]` : `{${text}${more}}`;
}

/** @type {(value: unknown) => string} */
function inWords(value) {
  if (Array.isArray(value)) return `[${value.length}]`;
  if (isRaw(value)) return value.rawJSON;
  if (isObject(value)) return `{${Object.keys(value).length}}`;
  return typeof value === "string" ? value.slice(0, 80) : String(value);
}

/**
 * A list or an object that can be opened. Its content is made when it is first opened, because a record may have a
 * million values. While it is open, its heading has only the number of entries.
 *
 * @type {(value: unknown[] | Record<string, unknown>, words: string, depth?: number, isOpen?: boolean) => HTMLElement}
 */
function folded(value, words, depth = 0, isOpen = false) {
  const said = h("bdi", {}, words);
  const box = h("details", { class: words.length > LONG ? "folded long" : "folded" }, h("summary", {}, said));
  const fill = () => {
    said.textContent = box.open ? counted(value) : words;
    if (box.open && box.children.length === 1) box.append(tree(value, depth));
  };
  box.addEventListener("toggle", fill);
  if (isOpen) {
    box.open = true;
    fill();
  }
  return box;
}

/** @type {(value: unknown[] | Record<string, unknown>) => string} */
function counted(value) {
  const entries = Array.isArray(value) ? value.length : Object.keys(value).length;
  return `${count(entries)} ${entries === 1 ? "entry" : "entries"}`;
}

/**
 * A list or an object with its whole content, a part at a time; `isTime(name)`: whether one of its fields is a time.
 *
 * @type {(value: unknown[] | Record<string, unknown>, depth?: number, isTime?: (name: string) => boolean) => HTMLElement}
 */
export function tree(value, depth = 0, isTime = () => false) {
  /** @type {[name: string, value: unknown][]} */
  const entries = Array.isArray(value) ? value.map((one, place) => [String(place), one]) : Object.entries(value);
  if (!entries.length) return h("p", { class: "muted" }, Array.isArray(value) ? "Empty list" : "Empty object");
  const list = h("ul", { class: "tree" });
  const more = h("button", { class: "button small", type: "button" });
  let done = 0;
  const add = () => {
    for (const [name, one] of entries.slice(done, done + ENTRIES))
      list.append(branch(name, one, depth, isTime(name)));
    done += ENTRIES;
    more.textContent = `${count(entries.length - done)} more`;
    more.hidden = done >= entries.length;
  };
  more.addEventListener("click", add);
  add();
  return h("div", {}, list, more);
}

/** @type {(name: string, value: unknown, depth: number, isTime: boolean) => HTMLElement} */
function branch(name, value, depth, isTime) {
  const label = h("bdi", { class: "name" }, shown(name, IN_CELL));
  if (isNested(value)) {
    const size = Array.isArray(value) ? value.length : Object.keys(value).length;
    const isOpen = depth < OPEN_DEPTH && size <= 20;
    return h("li", { class: "nested" }, label, folded(value, preview(value), depth + 1, isOpen));
  }
  return h("li", {}, label, h("span", { class: "value" }, ...(isTime ? [time(String(value ?? ""))] : whole(value))));
}

/**
 * A value in full; of a long text its beginning, and the rest on demand.
 *
 * @type {(value: unknown) => (Node | string)[]}
 */
function whole(value) {
  if (typeof value !== "string" || value.length <= IN_TREE) return [scalar(value, IN_TREE)];
  const text = h("bdi", {}, shown(value, IN_TREE));
  const more = h("button", { class: "button small", type: "button" }, `All ${count(value.length)} characters`);
  more.addEventListener("click", () => {
    text.textContent = shown(value, Infinity);
    more.remove();
  });
  return [text, " ", more];
}
