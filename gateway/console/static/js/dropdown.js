// A button with a panel below it.
import { h, icon } from "./dom.js";

/** Pixels that a panel needs, and pixels between the panel and the edge of the window. */
const LEAST = 240;
const EDGE = 16;

/**
 * A button with a panel below it, or above it if there is more room. Escape or a click elsewhere closes the panel.
 *
 * @param {string} symbol
 * @param {string} words
 * @param {HTMLElement} panel
 */
export function dropdown(symbol, words, panel) {
  const button = h("summary", { class: "button small" }, icon(symbol), h("span", {}, words));
  const box = h("details", { class: "dropdown" }, button, panel);
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !box.open) return;
    event.stopPropagation();
    box.open = false;
    button.focus();
  });
  // before the panel opens, because the toggle event comes only after it was drawn
  button.addEventListener("click", () => {
    const { top, bottom } = button.getBoundingClientRect();
    const [above, below] = [top - EDGE, innerHeight - bottom - EDGE];
    const isAbove = below < LEAST && above > below;
    panel.classList.toggle("above", isAbove);
    panel.style.maxHeight = `min(60vh, ${Math.round(isAbove ? above : below)}px)`;
  });
  document.addEventListener("click", (event) => {
    if (!(event.target instanceof Node && box.contains(event.target))) box.open = false;
  });
  return box;
}
