// Parts of a scatter of starts: the shape of each status, and round times for the axis.

const RADIUS = 4;
const DAY = 86_400_000;
const STEPS = [1, 5, 15, 60, 300, 900, 3600, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000, 31_536_000];
/** @type {Record<string, string>} */
const COLOURS = {
  finished: "--good",
  partial: "--warn",
  error: "--bad",
  cancelled: "--calm",
  running: "--accent",
  paused: "--warn",
  pending: "--wait",
};

/** @typedef {CanvasRenderingContext2D} Pen */

/** @type {(pen: Pen, x1: number, y1: number, x2: number, y2: number) => void} */
export function line(pen, x1, y1, x2, y2) {
  pen.beginPath();
  pen.moveTo(Math.round(x1) + 0.5, Math.round(y1) + 0.5);
  pen.lineTo(Math.round(x2) + 0.5, Math.round(y2) + 0.5);
  pen.stroke();
}

/**
 * Draw the shape of a status, like its icon: a disc, a half disc, a cross, or a ring with a stroke; for jobs that have
 * not ended a ring.
 *
 * @type {(pen: Pen, name: string, x: number, y: number, style: CSSStyleDeclaration) => void}
 */
export function shape(pen, name, x, y, style) {
  const colour = style.getPropertyValue(COLOURS[name] ?? "--calm");
  pen.fillStyle = colour;
  pen.strokeStyle = colour;
  pen.lineWidth = 1.6;
  pen.globalAlpha = 0.75;
  pen.beginPath();
  if (name === "error") {
    for (const side of [-1, 1]) {
      pen.moveTo(x - RADIUS, y - side * RADIUS);
      pen.lineTo(x + RADIUS, y + side * RADIUS);
    }
    pen.stroke();
  } else if (name === "partial") {
    pen.arc(x, y, RADIUS, -Math.PI / 2, Math.PI / 2);
    pen.fill();
    pen.beginPath();
    pen.arc(x, y, RADIUS, 0, 2 * Math.PI);
    pen.stroke();
  } else if (name === "cancelled") {
    pen.arc(x, y, RADIUS, 0, 2 * Math.PI);
    pen.moveTo(x - RADIUS * 0.7, y + RADIUS * 0.7);
    pen.lineTo(x + RADIUS * 0.7, y - RADIUS * 0.7);
    pen.stroke();
  } else {
    pen.arc(x, y, RADIUS - 0.5, 0, 2 * Math.PI);
    if (name === "finished") pen.fill();
    else pen.stroke();
  }
  pen.globalAlpha = 1;
  pen.lineWidth = 1;
}

/**
 * Round times of the user's zone between two, at most `most` of them, with their words.
 *
 * @param {number} first in milliseconds since 1970
 * @param {number} last
 * @param {number} most
 * @returns {Generator<[time: number, words: string]>}
 */
export function* marks(first, last, most) {
  const step = (STEPS.find((one) => (last - first) / (one * 1000) <= most) ?? 31_536_000) * 1000;
  const zone = new Date(first).getTimezoneOffset() * 60_000;
  /** @type {Intl.DateTimeFormatOptions} */
  const day = { day: "numeric", month: "short" };
  /** @type {Intl.DateTimeFormatOptions} */
  const clock = { hour: "2-digit", minute: "2-digit", ...(step < 60_000 && { second: "2-digit" }) };
  const isLong = last - first > DAY;
  const format = new Intl.DateTimeFormat("en-GB", step < DAY ? { ...clock, ...(isLong && day) } : day);
  for (let time = Math.ceil((first - zone) / step) * step + zone; time < last; time += step)
    yield [time, format.format(time)];
}
