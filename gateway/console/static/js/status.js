// A status as colour, shape and word, as the macro `status` writes it.
import { h, icon, symbol } from "./text.js";

/** A new one. */
export function status(name) {
  const shape = icon(name);
  shape.removeAttribute("class");
  return h("span", { class: "status", "data-status": name }, shape, h("span", {}, name.replaceAll("_", " ")));
}

/** Another status for one that is there. */
export function setStatus(element, name) {
  if (element.dataset.status === name) return;
  element.dataset.status = name;
  element.querySelector("use").setAttribute("href", symbol(name));
  element.querySelector("span").textContent = name.replaceAll("_", " ");
}
