// On a phone the rows of tables are shown as cards (console.css), in which each cell has its column's name before it.
import { allWithin } from "./dom.js";

const SAID_BY_ITSELF = ["Actions", "State", "Status"];

function label() {
  for (const table of allWithin(document, ".cards", HTMLTableElement)) {
    const columns = [...(table.tHead?.rows[0]?.cells ?? [])];
    // some name no main column: it is the first then
    const lead = columns.find((column) => column.matches(".fill")) ?? columns[0];
    for (const row of table.tBodies[0]?.rows ?? []) {
      for (const [at, cell] of [...row.cells].entries())
        if (columns[at]) mark(cell, columns[at], columns[at] === lead);
    }
  }
}

/** @type {(cell: HTMLElement, column: HTMLElement, isLead: boolean) => void} */
function mark(cell, column, isLead) {
  cell.classList.toggle("lead", isLead);
  const words = (column.textContent ?? "").trim();
  if (!isLead && !cell.matches(".what") && !SAID_BY_ITSELF.includes(words)) cell.dataset.label = words;
}

document.addEventListener("htmx:after:swap", label);
label();
