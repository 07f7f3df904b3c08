// A status as colour, shape and word, as the macro `status` writes it.
import { h, icon, symbol, within } from "./dom.js";

/**
 * A new element for a status.
 *
 * @param {string} name
 */
export function status(name) {
  const shape = icon(name);
  shape.removeAttribute("class");
  return h("span", { class: "status", "data-status": name }, shape, h("span", {}, name.replaceAll("_", " ")));
}

/**
 * Let an element show another status.
 *
 * @param {HTMLElement} element
 * @param {string} name
 */
export function setStatus(element, name) {
  if (element.dataset.status === name) return;
  element.dataset.status = name;
  within(element, "use", SVGUseElement).setAttribute("href", symbol(name));
  within(element, "span").textContent = name.replaceAll("_", " ");
}
