// Times: `<time datetime data-ago>` says how long ago, kept fresh; `data-exact` says when, in the
// user's zone; `data-clock` says the same of something soon in a few letters.
import { allWithin, h } from "./dom.js";
import { UNITS } from "./text.js";

const EXACT = new Intl.DateTimeFormat("en-CA", {
  year: "numeric",
  month: "2-digit",
  day: "2-digit",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
  timeZoneName: "short",
});
const DAY = new Intl.DateTimeFormat("en", { weekday: "short" });

/**
 * `3 min ago`, `in 2 h`.
 *
 * @param {Date} date
 */
export function ago(date, now = Date.now()) {
  const seconds = (now - date.getTime()) / 1000;
  const distance = Math.abs(seconds);
  if (distance < 10) return "now";
  const [size, unit] = UNITS.find(([one]) => distance >= one) ?? [1, "s"];
  const whole = Math.floor(distance / size);
  return seconds > 0 ? `${whole} ${unit} ago` : `in ${whole} ${unit}`;
}

/**
 * Year, month and so on in the user's zone, by name.
 *
 * @param {Date} date
 */
const partsOf = (date) => Object.fromEntries(EXACT.formatToParts(date).map(({ type, value }) => [type, value]));

/**
 * `2027-06-01 09:00:01 CEST`.
 *
 * @param {Date} date
 */
export function exact(date) {
  const part = partsOf(date);
  return `${part.year}-${part.month}-${part.day} ${part.hour}:${part.minute}:${part.second} ${part.timeZoneName}`;
}

/**
 * `Tue 09:00` of what is less than six days away, else `2027-06-01 09:00`.
 *
 * @param {Date} date
 */
export function clock(date, now = Date.now()) {
  const part = partsOf(date);
  const isSoon = Math.abs(now - date.getTime()) < 6 * 86_400_000;
  return `${isSoon ? DAY.format(date) : `${part.year}-${part.month}-${part.day}`} ${part.hour}:${part.minute}`;
}

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
setInterval(() => document.hidden || refresh(), 10_000);
document.addEventListener("visibilitychange", () => document.hidden || refresh());
document.addEventListener("htmx:after:swap", () => refresh());
