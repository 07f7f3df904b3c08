// Intervals that a form can write: every day at a time, on weekdays, once a week, every so often.

/** @typedef {{ kind: string, every: string, time: string, day: string }} Chosen the values of the form's fields */

const AGAIN = new Set(["daily", "weekdays", "weekly", "every", "cron"]);

/**
 * Whether a kind runs more than once.
 *
 * @param {string} kind
 */
export const isAgain = (kind) => AGAIN.has(kind);

/**
 * The fields of the form for an interval; `{}` if the form cannot express it.
 *
 * @param {string} text
 * @returns {Partial<Chosen>}
 */
export function recognised(text) {
  const every = text.match(/^every\s+(.+)$/i);
  if (every?.[1]) return { kind: "every", every: every[1] };
  const [, minute, hour, days] = text.match(/^(\d{1,2}) (\d{1,2}) \* \* (\*|[0-6]|MON-FRI|1-5)$/i) ?? [];
  if (minute === undefined || hour === undefined || days === undefined) return {};
  const time = `${hour.padStart(2, "0")}:${minute.padStart(2, "0")}`;
  if (days === "*") return { kind: "daily", time };
  return /^[0-6]$/.test(days) ? { kind: "weekly", time, day: days } : { kind: "weekdays", time };
}

/**
 * The interval that the fields say; undefined where they say none, and somebody writes it.
 *
 * @param {Chosen} chosen
 */
export function intervalOf({ kind, every, time, day }) {
  const [hour, minute] = (time || "00:00").split(":").map(Number);
  /** @type {Record<string, string>} */
  const days = { daily: "*", weekdays: "MON-FRI", weekly: day };
  if (kind in days) return `${minute} ${hour} * * ${days[kind]}`;
  return kind === "every" ? `every ${every.trim()}` : undefined;
}
