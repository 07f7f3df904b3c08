// On a phone the rows of tables are shown as cards (console.css), in which each cell has its column's name before it.
import { allWithin } from "./dom.js";

const SAID_BY_ITSELF = ["Actions", "State", "Status"];

function label() {
  for (const table of allWithin(document, ".cards", HTMLTableElement)) {
    const columns = [...(table.tHead?.rows[0]?.cells ?? [])];
    const lead = columns[leadOf(table)];
    for (const row of table.tBodies[0]?.rows ?? []) {
      for (const [at, cell] of [...row.cells].entries())
        if (columns[at]) mark(cell, columns[at], columns[at] === lead);
    }
  }
}

/**
 * The place of the column that says what a row is: that of its main cell, else the first, or the one that fills the
 * table if the first is a state or a time.
 *
 * @type {(table: HTMLTableElement) => number}
 */
function leadOf(table) {
  const cells = [...(table.tBodies[0]?.rows[0]?.cells ?? [])];
  const main = cells.findIndex((cell) => cell.matches("th[scope=row], .main-cell, .what"));
  if (main >= 0) return main;
  const columns = [...(table.tHead?.rows[0]?.cells ?? [])];
  const first = (columns[0]?.textContent ?? "").trim();
  const isName = first !== "Time" && !SAID_BY_ITSELF.includes(first);
  return isName
    ? 0
    : Math.max(
        columns.findIndex((column) => column.matches(".fill")),
        0,
      );
}

/** @type {(cell: HTMLElement, column: HTMLElement, isLead: boolean) => void} */
function mark(cell, column, isLead) {
  cell.classList.toggle("lead", isLead);
  cell.classList.toggle("whole-line", !isLead && column.matches(".fill"));
  const words = (column.textContent ?? "").trim();
  if (!isLead && !cell.matches(".what") && !SAID_BY_ITSELF.includes(words)) cell.dataset.label = words;
}

document.addEventListener("htmx:after:swap", label);
label();
