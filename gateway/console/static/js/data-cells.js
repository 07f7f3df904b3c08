// The cells and the headings of a table of records.
import { h, icon } from "./dom.js";
import { isNumber, valueAt } from "./record.js";
import { cell } from "./record-values.js";
import { count, shown, size } from "./text.js";
import { time } from "./times.js";

/**
 * @typedef {import("./data-columns.js").Column} Column
 * @typedef {Record<string, unknown>} Values
 */

/** @type {(value: unknown) => number} */
const number = (value) => /** @type {number} */ (value);

/** @type {Record<string, (value: unknown) => Child>} */
const KINDS = {
  ms: (value) => `${count(number(value))} ms`,
  bytes: (value) => size(number(value)),
  time: (value) => time(String(value)),
  code: (value) => h("span", { class: number(value) >= 400 ? "bad" : null }, String(value)),
  yes: (value) => (value ? "yes" : ""),
  some: (value) => (value ? count(number(value)) : ""),
  link: (value) => cell(value),
  text: (value) => cell(value),
};
const NUMBERS = new Set(["ms", "bytes", "code", "some"]);

/** @type {(column: Column, record: Values) => HTMLElement} */
export function cellOf({ name, kind, hasNumbers }, record) {
  const value = valueAt(record, name);
  const isAtEnd = isOfNumbers(kind) || isNumber(value) || (value === null && hasNumbers);
  const write = KINDS[kind ?? ""] ?? cell;
  const content = kind && value == null ? "" : write(value);
  return h("td", { class: isAtEnd ? "number" : kind === "link" ? "link" : null }, content);
}

/**
 * @param {Column} column
 * @param {string} sort by which the table is sorted
 * @param {(sort: string) => void} onSort called with "" for the usual order
 */
export function headingOf({ label, sorts, kind, hasNumbers }, sort, onSort) {
  const words = h("bdi", {}, shown(label, 60));
  const attributes = { scope: "col", class: isOfNumbers(kind) || (!kind && hasNumbers) ? "number" : null };
  if (!sorts.length) return h("th", attributes, words);
  const place = sorts.indexOf(sort);
  const direction = place < 0 ? null : sort.startsWith("-") ? "descending" : "ascending";
  const arrow = direction && icon(direction === "descending" ? "down-arrow" : "up-arrow");
  const next = sorts[place + 1] ?? (place > 0 || sorts.length === 1 ? "" : sorts[0]) ?? "";
  const button = h("button", { class: "sort", type: "button", onclick: () => onSort(next) }, words, arrow);
  return h("th", { ...attributes, "aria-sort": direction ?? "none" }, button);
}

/** @type {(kind: string | undefined) => boolean} */
const isOfNumbers = (kind) => kind !== undefined && NUMBERS.has(kind);
