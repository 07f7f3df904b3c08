// Which rows of a long list exist, and where its scroll bar is.

/** Rows that exist above and below those in sight. */
const SPARE = 12;
/** Pixels that the scroll bar's range has at most. */
const LONGEST = 8_000_000;

/**
 * What is in sight: the first row, and how many of its pixels are above the edge; `room` and `height` are the pixels
 * of the box and, on average, of a row.
 *
 * @typedef {{ first: number, above: number, count: number, height: number, room: number }} Sight
 */

/**
 * The rows that exist: the number of the first one, and the number after the last one.
 *
 * @param {Sight} sight
 * @param {number} least pixels that a row has at least
 * @param {boolean} isStuck the last row stays in sight
 * @returns {[from: number, to: number]}
 */
export function windowOf({ first, above, count, room }, least, isStuck) {
  const needed = Math.ceil(room / least);
  let from = Math.max(0, first - SPARE - Math.max(0, Math.ceil(-above / least)));
  if (isStuck || first + needed >= count) from = Math.max(0, Math.min(from, count - needed - SPARE));
  return [from, Math.min(count, Math.max(first, from) + needed + SPARE)];
}

/**
 * The first row in sight, and how much of it is above the edge, if the scroll bar is at this share of its range.
 *
 * @param {number} share from 0 to 1
 * @param {Pick<Sight, "count" | "height" | "room">} sight
 * @returns {[first: number, above: number]}
 */
export function rowAt(share, { count, height, room }) {
  const exact = share * Math.max(0, count - room / height);
  const first = Math.floor(exact);
  return [first, (exact - first) * height];
}

/**
 * The scroll bar, in pixels: the length that it scrolls through, and its position. It is at its very ends only if the
 * list is at its ends.
 *
 * @param {Sight} sight
 * @param {boolean} isAtEnd
 * @returns {[length: number, top: number]}
 */
export function barOf({ first, above, count, height, room }, isAtEnd) {
  const length = Math.round(Math.max(room, Math.min(LONGEST, count * height)));
  const range = length - room;
  const share = Math.min(1, (first + above / height) / Math.max(1, count - room / height));
  const top = isAtEnd ? range : Math.min(Math.round(share * range), range - 2);
  return [length, first === 0 && above <= 0 ? 0 : Math.max(1, top)];
}
