// Keys: an element with `data-key="g j"` is clicked, or focused if it is a field, when these keys are pressed one after
// the other. `data-key-too` names keys with the same effect, which the element's own script handles. An element of the
// page's own content goes before one of the frame. Keys do nothing while somebody types or a dialog is open. Once the
// user has switched single keys off, only Ctrl-K does something.

import { allWithin, h } from "./dom.js";
import { open } from "./palette.js";

const PATIENCE = 1500;
const OFF = "keys-off";
const FIELDS = "input, textarea, select, [contenteditable]";
const BUTTONS = 'input:is([type="checkbox"], [type="radio"], [type="button"])';

/** @type {string[]} */
let pressed = [];
let last = 0;

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.isComposing) return;
  if ((event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey && event.key.toLowerCase() === "k") {
    event.preventDefault();
    openPalette();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.key.length !== 1) return;
  if (isTyping(event.target) || document.querySelector("dialog[open]") || areOff()) return;
  if (press(event.key, event.timeStamp)) event.preventDefault();
});

/**
 * Whether the keys so far name an element, which was then used.
 *
 * @type {(key: string, now: number) => boolean}
 */
function press(key, now) {
  pressed = now - last < PATIENCE ? [...pressed, key].slice(-2) : [key];
  last = now;
  const element = named(pressed.join(" ")) ?? (isWithin(pressed) ? undefined : named(key));
  if (!element) return false;
  pressed = [];
  if (element.matches(FIELDS) && !element.matches(BUTTONS)) {
    element.focus();
    if ("select" in element && typeof element.select === "function") element.select();
  } else element.click();
  return true;
}

/**
 * Whether the last key only makes sense after the one before it.
 *
 * @type {(keys: string[]) => boolean}
 */
const isWithin = ([first = "", second]) =>
  second !== undefined && document.querySelector(`[data-key^="${CSS.escape(first)} "]`) !== null;

/** @type {(keys: string) => HTMLElement | undefined} */
function named(keys) {
  const selector = `[data-key="${CSS.escape(keys)}"]:not(:disabled)`;
  return allWithin(document, `main ${selector}`)[0] ?? allWithin(document, selector)[0];
}

/**
 * Whether somebody types. A field whose dialog was just closed still has the focus for a moment, but does not count.
 *
 * @type {(element: EventTarget | null) => boolean}
 */
const isTyping = (element) =>
  element instanceof Element && element.matches(FIELDS) && !element.matches(BUTTONS) && element.checkVisibility();

function areOff() {
  try {
    return localStorage.getItem(OFF) === "yes";
  } catch {
    return false;
  }
}

function openPalette() {
  if (!document.querySelector("dialog[open]") && document.getElementById("palette")) open();
}

/** A dialog with the effect of each key. */
function listKeys() {
  const here = allWithin(document, "main [data-key]");
  const taken = new Set(here.map(({ dataset }) => dataset.key));
  const framed = allWithin(document, "body > :not(main) [data-key]");
  const everywhere = framed.filter(({ dataset }) => !taken.has(dataset.key));
  const on = h("input", { type: "checkbox", id: "keys-on" });
  on.checked = !areOff();
  on.addEventListener("change", () => switchKeys(on.checked));
  const dialog = h(
    "dialog",
    { "aria-labelledby": "keys-title", class: "keys" },
    h(
      "form",
      { method: "dialog" },
      h("h2", { id: "keys-title" }, "Shortcuts"),
      keys("On this page", here),
      keys("Everywhere", everywhere, line("Ctrl K", "Search or jump to a page")),
      h(
        "div",
        { class: "field tick" },
        on,
        h("label", { for: "keys-on" }, "Use single-key shortcuts (Ctrl K always works)"),
      ),
      h("div", { class: "buttons" }, h("button", { class: "button", autofocus: true }, "Close")),
    ),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

/** @type {(title: string, elements: HTMLElement[], more?: HTMLElement) => HTMLElement | null} */
function keys(title, elements, more) {
  if (!elements.length) return null;
  const rows = elements.flatMap((element) => {
    const typed = [element.dataset.key, element.dataset.keyToo];
    return typed.map((names) => names && line(names, wordsOf(element)));
  });
  return h("section", {}, h("h3", {}, title), h("dl", {}, more, ...rows));
}

/** @type {(names: string, words: string) => HTMLElement} */
const line = (names, words) =>
  h("div", {}, h("dt", {}, ...names.split(" ").flatMap((key) => [h("kbd", {}, key), " "])), h("dd", {}, words));

/** @type {(element: HTMLElement) => string} */
const wordsOf = (element) =>
  element.dataset.keyWords ??
  element.getAttribute("aria-label") ??
  (element.textContent?.trim() || labelOf(element)?.textContent?.trim() || "");

/** @param {HTMLElement} element */
const labelOf = (element) => document.querySelector(`label[for="${CSS.escape(element.id)}"]`);

/** @type {(on: boolean) => void} */
function switchKeys(on) {
  try {
    if (on) localStorage.removeItem(OFF);
    else localStorage.setItem(OFF, "yes");
  } catch {
    // then the choice is not kept
  }
}

document.getElementById("palette")?.addEventListener("click", openPalette);
document.getElementById("keys")?.addEventListener("click", listKeys);
