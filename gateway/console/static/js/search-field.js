// A field in which somebody types what to look for.
import { h } from "./dom.js";

/** Milliseconds from the last key to the search. */
const TYPING = 350;

/**
 * @param {string} label
 * @param {string} value
 * @param {(text: string) => void} onText
 */
export function searchField(label, value, onText) {
  const named = { "aria-label": label, placeholder: label, value };
  const field = h("input", { type: "search", maxlength: "200", ...named });
  /** @type {number | undefined} */
  let typing;
  field.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => onText(field.value.trim()), TYPING);
  });
  return h("div", { class: "data-search" }, field);
}
