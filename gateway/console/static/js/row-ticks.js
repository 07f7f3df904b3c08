// Ticks of rows: with any of them, an action on many jobs is on the ticked jobs alone. `[data-tick]` has a job's id,
// `[data-tick-all]` ticks all rows of the page, and `[data-acts-on]` says which jobs the actions beside it are on:
// while none is ticked, those that its value names.
import { above, allWithin } from "./dom.js";

const boxes = () => allWithin(document, "[data-tick]", HTMLInputElement);

/** The ids of the ticked jobs. */
export const ticked = () =>
  boxes()
    .filter((box) => box.checked)
    .map((box) => box.value);

document.addEventListener("change", (event) => {
  const box = above(event, "[data-tick], [data-tick-all]");
  if (!(box instanceof HTMLInputElement)) return;
  if (box.dataset.tickAll !== undefined) for (const one of boxes()) one.checked = box.checked;
  const number = ticked().length;
  for (const all of allWithin(document, "[data-tick-all]", HTMLInputElement)) {
    all.checked = number === boxes().length;
    all.indeterminate = number > 0 && !all.checked;
  }
  for (const place of allWithin(document, "[data-acts-on]")) {
    place.textContent = number ? `${number} selected:` : (place.dataset.actsOn ?? "");
  }
});
