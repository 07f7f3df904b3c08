// Text for people, in the forms of `formats.py` on the server: for values that only the browser knows, or that change.

/** Control characters, characters that change the direction or position of text, and half surrogate pairs. */
export const INVISIBLE =
  /[\p{Cc}\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\p{Cs}]/gu;
/** @type {Record<string, string>} */
const SHORT = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

/**
 * Text whose controls and invisible characters are visible escapes, cut at `limit` characters.
 *
 * @param {unknown} text
 */
export function shown(text, limit = 200) {
  const whole = String(text);
  const cut = whole.length > limit ? `${whole.slice(0, limit)}…` : whole;
  return cut.replace(INVISIBLE, (found) => {
    const code = found.charCodeAt(0);
    return SHORT[found] ?? (code < 256 ? `\\x${hex(code, 2)}` : `\\u${hex(code, 4)}`);
  });
}

/** @type {(code: number, digits: number) => string} */
const hex = (code, digits) => code.toString(16).padStart(digits, "0");

/** @type {[seconds: number, unit: string][]} */
export const UNITS = [
  [86400, "d"],
  [3600, "h"],
  [60, "min"],
  [1, "s"],
];

/**
 * `2 h 5 min`, from seconds.
 *
 * @param {number | null | undefined} value
 */
export function duration(value) {
  if (value == null) return "–";
  const seconds = Math.max(0, value);
  if (seconds < 10) return `${seconds % 1 >= 0.05 ? seconds.toFixed(1) : seconds.toFixed(0)} s`;
  let left = Math.round(seconds);
  /** @type {string[]} */
  const parts = [];
  for (const [size, unit] of UNITS) {
    const count = Math.floor(left / size);
    left %= size;
    if (count || parts.length) parts.push(count ? `${count} ${unit}` : "");
    if (parts.length === 2) break;
  }
  return parts.filter(Boolean).join(" ");
}

const SIZES = ["B", "kB", "MB", "GB", "TB", "PB"];

/**
 * `1.5 MB`, from bytes.
 *
 * @param {number | null | undefined} bytes
 */
export function size(bytes) {
  if (bytes == null) return "–";
  let [value, unit] = [bytes, 0];
  while (value >= 999.5 && unit < SIZES.length - 1) [value, unit] = [value / 1000, unit + 1];
  return `${unit && value < 99.95 ? value.toFixed(1) : value.toFixed(0)} ${SIZES[unit]}`;
}

const NUMBERS = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

/**
 * `12,345`.
 *
 * @param {number | null | undefined} number
 */
export const count = (number) => (number == null ? "–" : NUMBERS.format(number));
