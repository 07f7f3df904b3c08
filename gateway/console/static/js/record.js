// Values that a spider has scraped, as elements: short in a cell, whole as a tree, and one record in a drawer.
import { count, h, icon, shown } from "./text.js";
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

// --- JSON without a loss: an integer beyond 53 bits stays the text that it was, where the browser can do that

const isRaw = (value) => JSON.isRawJSON?.(value) ?? false;

/** JSON text as values. */
export function parse(text) {
  if (!JSON.rawJSON) return JSON.parse(text);
  return JSON.parse(text, (_, value, { source }) =>
    typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value)
      ? JSON.rawJSON(source)
      : value,
  );
}

/** What stands at `path` in a record: the field of that name, or that of an object in it (`seller.name`). */
export function valueAt(record, path) {
  if (Object.hasOwn(record, path)) return record[path];
  const [outer, ...rest] = path.split(".");
  const inner = rest.join(".");
  const object = Object.hasOwn(record, outer) ? record[outer] : null;
  return isObject(object) && inner && Object.hasOwn(object, inner) ? object[inner] : undefined;
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value) && !isRaw(value);
const isNested = (value) => Array.isArray(value) || isObject(value);

// --- one value

/** What a table's cell shows of a value. */
export function cell(value) {
  if (value === undefined) return "";
  if (isNested(value)) return folded(value, preview(value));
  return scalar(value, IN_CELL);
}

function scalar(value, limit) {
  if (value === null) return h("span", { class: "muted" }, "null");
  if (isRaw(value)) return value.rawJSON;
  if (typeof value !== "string") return String(value);
  const address = webAddress(value);
  const text = h("bdi", { class: value.length > LONG ? "long" : null }, shown(value, limit));
  return address ? h("a", { href: address, target: "_blank", rel: "noreferrer noopener nofollow" }, text) : text;
}

/** The address that a text is; undefined for anything but http and https. */
function webAddress(text) {
  if (text.length > LONGEST_ADDRESS || !/^https?:\/\/[^\s]+$/i.test(text)) return undefined;
  return URL.canParse(text) ? new URL(text).href : undefined;
}

/** Whether values of this kind stand at the right of their column. */
export const isNumber = (value) => typeof value === "number" || isRaw(value);

/** One line that says what is in a list or an object. */
function preview(value) {
  const entries = Array.isArray(value) ? value.map((one) => ["", one]) : Object.entries(value);
  const words = entries.slice(0, 8).map(([name, one]) => (name ? `${name}: ${inWords(one)}` : inWords(one)));
  const text = shown(words.join(", "), IN_CELL / 2);
  const more = entries.length > 8 && !text.endsWith("…") ? ", …" : "";
  return Array.isArray(value) ? `[${text}${more}]` : `{${text}${more}}`;
}

function inWords(value) {
  if (Array.isArray(value)) return `[${value.length}]`;
  if (isRaw(value)) return value.rawJSON;
  if (isObject(value)) return `{${Object.keys(value).length}}`;
  return typeof value === "string" ? value.slice(0, 80) : String(value);
}

/** Made when it is first opened: a record may have a million values. Open, it does not say twice what is in it. */
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

function counted(value) {
  const entries = Array.isArray(value) ? value.length : Object.keys(value).length;
  return `${count(entries)} ${entries === 1 ? "entry" : "entries"}`;
}

/** A list or an object with all that is in it, a part at a time; `isTime(name)`: whether a field of it is a time. */
export function tree(value, depth = 0, isTime = () => false) {
  const entries = Array.isArray(value) ? value.map((one, place) => [place, one]) : Object.entries(value);
  if (!entries.length) return h("p", { class: "muted" }, Array.isArray(value) ? "an empty list" : "an empty object");
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

function branch(name, value, depth, isTime) {
  const label = h("bdi", { class: "name" }, shown(name, IN_CELL));
  if (isNested(value)) {
    const size = Array.isArray(value) ? value.length : Object.keys(value).length;
    const isOpen = depth < OPEN_DEPTH && size <= 20;
    return h("li", { class: "nested" }, label, folded(value, preview(value), depth + 1, isOpen));
  }
  return h("li", {}, label, h("span", { class: "value" }, ...(isTime ? [time(value)] : whole(value))));
}

/** A value in full; of a long text its beginning, and the rest on demand. */
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

// --- one record in a drawer

/**
 * Shows a record beside its table. `step(1)` and `step(-1)` go to its neighbours and say what they are; `isTime(name)`
 * says whether a field is a time.
 */
export class Drawer {
  #step;
  #isTime;
  #title = h("h2", { id: "drawer-title", tabindex: "-1" });
  #content = h("div", { class: "drawer-content" });
  #record;
  #dialog;

  constructor(step, isTime) {
    this.#step = step;
    this.#isTime = isTime;
    const button = (name, words, act) => {
      const made = h(
        "button",
        { class: "button quiet small", type: "button", "aria-label": words, title: words },
        icon(name),
      );
      made.addEventListener("click", act);
      return made;
    };
    const copy = h(
      "button",
      { class: "button small", type: "button", "aria-live": "polite" },
      icon("copy"),
      "Copy as JSON",
    );
    copy.addEventListener("click", async () => {
      const done = await copied(JSON.stringify(this.#record, null, 2), this.#dialog);
      copy.lastChild.data = done ? "Copied" : "Not copied: this browser forbids it";
      setTimeout(() => (copy.lastChild.data = "Copy as JSON"), 3000);
    });
    const close = button("close", "Close", () => this.#dialog.close());
    const steps = [
      button("previous", "Previous record", () => this.#go(-1)),
      button("next", "Next record", () => this.#go(1)),
    ];
    const head = h("div", { class: "drawer-head" }, this.#title, ...steps, copy, close);
    this.#dialog = h("dialog", { class: "drawer", "aria-labelledby": "drawer-title" }, head, this.#content);
    this.#dialog.addEventListener("click", (event) => event.target === this.#dialog && this.#dialog.close());
    this.#dialog.addEventListener("keydown", (event) => {
      const steps = { ArrowRight: 1, ArrowLeft: -1, j: 1, k: -1 };
      if (event.key in steps && !event.ctrlKey && !event.metaKey && !event.altKey) this.#go(steps[event.key]);
    });
  }

  /** The element, for the table to hold. */
  get element() {
    return this.#dialog;
  }

  open(title, record) {
    this.#record = record;
    this.#title.textContent = title;
    this.#content.replaceChildren(tree(record, 0, this.#isTime));
    this.#content.scrollTop = 0;
    if (!this.#dialog.open) this.#dialog.showModal();
    this.#title.focus();
  }

  async #go(by) {
    const found = await this.#step(by);
    if (found) this.open(...found);
  }
}

/** Whether the text is in the clipboard now. A page that is neither at home nor encrypted can copy what is selected. */
async function copied(text, place) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h("textarea", { class: "visually-hidden", "aria-hidden": "true", tabindex: "-1" });
    area.value = text;
    place.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}
