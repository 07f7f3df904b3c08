// Positions in a log: `1-20480` is behind 20,480 bytes of the first attempt.

/** @typedef {[attempt: number, offset: number]} Position */

const LEVELS = ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"];

/**
 * `1-20480` as numbers: attempt, offset.
 *
 * @type {(id: PositionId) => Position}
 */
export const position = (id) => {
  const [attempt = 0, offset = 0] = id.split("-").map(Number);
  return [attempt, offset];
};

/**
 * Below 0 if the first one comes before the other.
 *
 * @type {(one: Position, other: Position) => number}
 */
export const compare = ([attempt, offset], [other, place]) => attempt - other || offset - place;

/**
 * How many of these lines end at this position or before it.
 *
 * @type {(lines: Pick<LogLine, "id">[], place: Position) => number}
 */
export function linesBefore(lines, place) {
  let [low, high] = [0, lines.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (compare(position(lines[middle].id), place) <= 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * The index of the last part that begins at this row or before it; 0 if none does.
 *
 * @type {(parts: { first: number }[], row: number) => number}
 */
export function partWith(parts, row) {
  let [low, high] = [0, parts.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (parts[middle].first <= row) low = middle;
    else high = middle - 1;
  }
  return Math.max(0, low);
}

/** @type {(level: string, lowest: string) => boolean} */
export const atLeast = (level, lowest) => LEVELS.indexOf(level) >= LEVELS.indexOf(lowest);
