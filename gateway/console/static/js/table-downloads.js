// The menu with the downloads of a table's records: all of them, and those that are shown, in each format.
import { h } from "./dom.js";
import { dropdown } from "./dropdown.js";

/** @typedef {import("./api.js").Query} Query */

/**
 * @param {string[]} formats
 * @param {(query: Query) => string} address
 * @param {() => Query} asShown
 */
export function downloads(formats, address, asShown) {
  const panel = h("div", { class: "panel" });
  const menu = dropdown("download", "Download", panel);
  /** @type {(words: string, query: Query) => HTMLElement[]} */
  const links = (words, query) => [
    h("p", { class: "muted small" }, words),
    ...formats.map((format) => h("a", { href: address({ ...query, format }), download: true }, format.toUpperCase())),
  ];
  menu.addEventListener("toggle", () => panel.replaceChildren(...links("All", {}), ...links("As shown", asShown())));
  return menu;
}
