// Times: `<time datetime data-ago>` says how long ago, kept fresh; `data-exact` says when, in the
// user's zone; `data-clock` is a short form for times that are near.
import { isAway } from "./connection.js";
import { allWithin, h } from "./dom.js";
import { ago, clock, exact } from "./moments.js";

/**
 * `<time>` for a time of the API; a dash for none.
 *
 * @param {Time | null | undefined} iso
 */
export function time(iso) {
  if (!iso) return document.createTextNode("–");
  const date = new Date(iso);
  return h("time", { datetime: iso, title: exact(date), "data-ago": true }, ago(date));
}

/** @param {ParentNode} root */
export function refresh(root = document) {
  for (const element of allWithin(root, "time:is([data-ago], [data-exact], [data-clock])", HTMLTimeElement)) {
    const date = new Date(element.dateTime);
    const words = exact(date);
    const said = "ago" in element.dataset ? ago(date) : "clock" in element.dataset ? clock(date) : words;
    if (element.textContent !== said) element.textContent = said;
    if (!("exact" in element.dataset) && element.title !== words) element.title = words;
  }
}

refresh();
setInterval(() => document.hidden || isAway() || refresh(), 10_000);
document.addEventListener("visibilitychange", () => document.hidden || refresh());
document.addEventListener("htmx:after:swap", () => refresh());
