// Times in words. The browser writes the times in the user's zone, because the server does not know this zone.
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

/** @type {(date: Date, zone: string) => { day: string, time: string }} */
function dayAndTime(date, zone) {
  const words = new Intl.DateTimeFormat("en-GB", {
    weekday: "long",
    day: "numeric",
    month: "long",
    hour: "2-digit",
    minute: "2-digit",
    hourCycle: "h23",
    timeZone: zone,
  });
  const part = Object.fromEntries(words.formatToParts(date).map(({ type, value }) => [type, value]));
  return { day: `${part.weekday} ${part.day} ${part.month}`, time: `${part.hour}:${part.minute}` };
}

/**
 * When the next run is, in the schedule's zone and in the user's own: a sentence.
 *
 * @param {Date} date
 * @param {string | null} zone null: the schedule has none
 */
export function nextRun(date, zone, own = Intl.DateTimeFormat().resolvedOptions().timeZone) {
  const yours = dayAndTime(date, own);
  if (!zone || zone === own) return `Next run: ${yours.day} at ${yours.time}, in your time zone (${own}).`;
  const theirs = dayAndTime(date, zone);
  const isSame = theirs.day === yours.day && theirs.time === yours.time;
  const there = `Next run: ${theirs.day} at ${theirs.time} in ${zone}`;
  if (isSame) return `${there}, and at the same time in your time zone (${own}).`;
  return `${there}. In your time zone (${own}) that is ${theirs.day === yours.day ? "" : `${yours.day} at `}${yours.time}.`;
}
