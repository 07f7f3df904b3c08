// Folds lines that Scrapy logs about itself into one row: how the crawl is set up, and what it has counted.
import { h } from "./dom.js";

/** The begin of a continuation line that is a part of a list or a dictionary. Output of a spider and tracebacks begin
 * differently, and are not folded. */
const PRETTY_PRINTED = /^[[{ ]/;

/**
 * The name of the row into which a logger's lines are folded, by logger. They come from `gateway/logs/fold.py`, in an
 * attribute of the page's element.
 *
 * @typedef {Record<string, string>} Names
 */

/**
 * Add a line to the rows, or fold it into the last row. Returns whether there is one more row.
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
