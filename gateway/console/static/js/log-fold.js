// Scrapy's account of itself in a log, folded into a row: how the crawl is set up, and what it has counted.
import { h } from "./dom.js";

/** With which a line begins that goes on with a list or a dictionary: what a spider prints, and a traceback, stay. */
const PRETTY_PRINTED = /^[[{ ]/;

/**
 * By logger: as what its lines are folded. `gateway/logs/fold.py` has them, and the page's element.
 *
 * @typedef {Record<string, string>} Names
 */

/**
 * Add a line to rows, or fold it into the last one. Returns whether there is a row more.
 *
 * @type {(rows: LogLine[], line: LogLine, names: Names) => boolean}
 */
export function push(rows, line, names) {
  const before = rows.at(-1);
  line.part = partOf(line, before, names);
  if (before && line.part && before.part === line.part) {
    rows[rows.length - 1] = { ...line, start: before.start, folded: (before.folded ?? 1) + 1 };
    return false;
  }
  rows.push(line);
  return true;
}

/** @type {(line: LogLine, before: LogLine | undefined, names: Names) => string | undefined} */
function partOf({ cont, level, logger, msg }, before, names) {
  if (cont) return PRETTY_PRINTED.test(msg) ? before?.part : undefined;
  return level === "INFO" || level === "DEBUG" ? names[logger] : undefined;
}

/**
 * The row of lines that are folded, with a button that shows them.
 *
 * @type {(row: LogLine, isCurrent: boolean) => HTMLElement}
 */
export function drawFold({ folded, part }, isCurrent) {
  const words = `Show ${folded} lines of Scrapy’s ${part}`;
  const button = h(
    "button",
    { type: "button", class: "button small quiet", tabindex: -1, "data-unfold": true },
    words,
  );
  return h(
    "div",
    { class: "log-row log-fold", role: "row", "aria-current": isCurrent && "true" },
    h("span", { role: "cell" }, button),
  );
}
