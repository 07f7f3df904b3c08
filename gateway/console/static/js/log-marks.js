// Marks beside a log's scroll bar: where a search has found something.
import { h } from "./dom.js";

/** @typedef {import("./log-hits.js").Mark} Mark */

const WIDTH = 8;
const THIN = 2;

export class LogMarks {
  element = h("canvas", { class: "log-marks", "aria-hidden": "true" });

  /**
   * @param {Mark[]} marks
   * @param {number} height pixels of the box beside it
   * @param {(place: [attempt: number, offset: number]) => number} share which part of the log comes before a place
   */
  draw(marks, height, share) {
    const { element } = this;
    if (!marks.length && element.dataset.marks === "0") return;
    const ratio = devicePixelRatio;
    const size = [WIDTH * ratio, height * ratio];
    if (element.width !== size[0] || element.height !== size[1]) [element.width, element.height] = size;
    const pen = element.getContext("2d");
    if (!pen) return;
    pen.clearRect(0, 0, element.width, element.height);
    pen.fillStyle = getComputedStyle(element).getPropertyValue("--accent");
    const thin = THIN * ratio;
    for (const [attempt, start, end] of marks) {
      // a hit is named by where its line ends
      const top = share([attempt, end ? start : start - 1]);
      const bottom = end ? share([attempt, end]) : top;
      const from = Math.min(Math.floor(top * element.height), element.height - thin);
      pen.fillRect(0, from, element.width, Math.max(thin, (bottom - top) * element.height));
    }
    element.dataset.marks = String(marks.length);
  }
}
