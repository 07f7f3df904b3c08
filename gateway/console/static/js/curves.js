// A crawl's counts over time: its pace, its queue, its answers and its errors, as lines of charts.

/**
 * The counts of an attempt: lists of the same length, of the moments (seconds since 1970) in `at`.
 *
 * @typedef {{ at: number[] } & { [count: string]: number[] }} Counts
 * @typedef {(curve: Counts, place: number) => number | null} Value of one moment
 * @typedef {[name: string, value: Value, colour?: string]} Line
 * @typedef {import("./line-chart.js").Picture} Picture
 */

const CLASSES = [
  ["2xx", "--good"],
  ["3xx", "--accent"],
  ["4xx", "--warn"],
  ["5xx", "--bad"],
];

/** @type {(curve: Curve) => Counts} */
export const countsOf = (curve) => ({ ...curve, at: curve.at.map((moment) => Date.parse(moment) / 1000) });

/** @type {(name: string) => (curve: Counts, place: number) => number} */
const counted = (name) => (curve, place) => curve[name]?.[place] ?? 0;
const [requested, completed, failed] = ["requested_pages", "completed_pages", "errors_count"].map(counted);

/** @type {(curve: Counts, place: number) => number} */
const done = (curve, place) => completed(curve, place) + failed(curve, place);

/**
 * The rate per second since the point before; null at the first point of an attempt.
 *
 * @type {(name: string) => Value}
 */
export const rate = (name) => (curve, place) => {
  if (!place) return null;
  const more = counted(name)(curve, place) - counted(name)(curve, place - 1);
  return Math.max(0, more) / (curve.at[place] - curve.at[place - 1]);
};

/**
 * The lines of each chart, by its id.
 *
 * @param {Counts[]} curves of the attempts, one after the other
 * @param {boolean} isOver
 * @returns {Record<string, Picture>}
 */
export function pictures(curves, isOver) {
  /** @type {Value} */
  const queued = (curve, place) => {
    // requests that the crawl has left at its end are not queued any more
    if (isOver && curve === curves.at(-1) && place === curve.at.length - 1) return 0;
    return Math.max(0, requested(curve, place) - done(curve, place));
  };
  /** @type {Line[]} */
  const answers = CLASSES.map(([name = "", colour]) => [name, rate(`answered_${name}`), colour]);
  const picture = (/** @type {Line[]} */ ...lines) => joined(curves, lines);
  return {
    pace: picture(["pages", rate("completed_pages")], ["items", rate("items_count")]),
    queue: picture(["queued", queued], ["done", done]),
    answers: picture(...answers),
    errors: picture(["errors", failed, "--bad"]),
  };
}

/**
 * All attempts one after the other, with a gap between them.
 *
 * @type {(curves: Counts[], lines: Line[]) => Picture}
 */
function joined(curves, lines) {
  const whole = curves.filter(({ at }) => at.length);
  /** @type {<T>(of: (curve: Counts, place: number) => T, gap: (curve: Counts) => T) => T[]} */
  const values = (of, gap) =>
    whole.flatMap((curve, number) => {
      const own = curve.at.map((_, place) => of(curve, place));
      return number ? [gap(curve), ...own] : own;
    });
  return {
    at: values(
      (curve, place) => curve.at[place],
      (curve) => curve.at[0] - 0.001,
    ),
    lines: lines.map(([name, of, colour]) => ({ name, colour, values: values(of, () => null) })),
  };
}
