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
  // a CSV from a page is for a spreadsheet, which takes it for another encoding without the mark
  /** @type {(format: string, query: Query) => string} */
  const file = (format, query) => address({ ...query, format, ...(format === "csv" && { bom: "true" }) });
  /** @type {(words: string, query: Query) => HTMLElement[]} */
  const links = (words, query) => [
    h("p", { class: "muted small" }, words),
    ...formats.map((format) => h("a", { href: file(format, query), download: true }, format.toUpperCase())),
  ];
  menu.addEventListener("toggle", () =>
    panel.replaceChildren(...links("All", {}), ...links("Current view", asShown())),
  );
  return menu;
}
