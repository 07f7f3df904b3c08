// The line above a table of records that says which of them it shows.
import { count } from "./text.js";

/**
 * @param {object} shown
 * @param {number} shown.first how many records are before those that are shown
 * @param {number} shown.last how many there are up to the last one that is shown
 * @param {boolean} shown.isAll nothing comes after it
 * @param {number} [shown.searched] where something is looked for: among how many
 * @param {string | null} total how many there are, where that is known
 */
export function rangeWords({ first, last, isAll, searched }, total) {
  if (searched !== undefined) {
    return `${last ? count(last) : "None"} found, ${isAll ? "all" : count(searched)} searched`;
  }
  const known = isAll ? last : Math.max(Number(total ?? 0), last);
  const all = isAll || total ? count(known) : `${count(last)} or more`;
  return last ? `${count(first + 1)}–${count(last)} of ${all}` : "";
}
