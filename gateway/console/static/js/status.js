// A status as colour, shape and word, as the macro `status` writes it.
import { h, icon, symbol, within } from "./dom.js";

/**
 * A new one.
 *
 * @param {string} name
 */
export function status(name) {
  const shape = icon(name);
  shape.removeAttribute("class");
  return h("span", { class: "status", "data-status": name }, shape, h("span", {}, name.replaceAll("_", " ")));
}

/**
 * Another status for one that is there.
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
