// `<start-scatter data-filter='{"spider": "seo"}'>`: jobs by their start and how long they ran. The outcome is a colour
// and a shape. Dragging over a time asks for the jobs that started then: the event `scatter:brush` has `since` and
// `until`. A click opens the job. The keyboard's way to the same are the fields "Started from" and "before".
import { api, messageOf } from "./api.js";
import { h } from "./dom.js";
import { exact } from "./moments.js";
import { line, marks, shape } from "./scatter-marks.js";
import { status } from "./status.js";
import { count, duration } from "./text.js";

const EDGE = { left: 56, right: 12, top: 10, bottom: 22 };
// pixels from the pointer within which a job is meant, and which a drag takes at least
const NEAR = 12;
// pixels between two words of an axis
const APART = 16;
const WORDS = 84;
const DRAG = 5;
/** @type {[seconds: number, words: string][]} */
const TICKS = [
  [0.1, "0.1 s"],
  [1, "1 s"],
  [10, "10 s"],
  [60, "1 min"],
  [600, "10 min"],
  [3600, "1 h"],
  [36_000, "10 h"],
  [86_400, "1 d"],
  [864_000, "10 d"],
];
const MOST_STEPS = 8;
/**
 * @typedef {{ job_id: string, status: string, started_at: Time, finished_at: Time | null }} StartedJob
 * @typedef {{ id: string, status: string, start: number, seconds: number }} Point
 * @typedef {{ offsetX: number, offsetY: number }} Spot
 */

class StartScatter extends HTMLElement {
  canvas = h("canvas", { role: "img", "aria-label": "Start times and durations of jobs" });
  tip = h("div", { class: "tip", hidden: true });
  shade = h("div", { class: "brush", hidden: true });
  legend = h("figcaption", {}, "Loading start times and durations…");
  /** @type {Point[]} */
  points = [];
  frame = { width: 0, height: 0 };
  /** @type {[first: number, last: number]} */
  times = [0, 1];
  /** @type {[low: number, high: number]} */
  lengths = [0, 1];
  /**
   * Where a drag began.
   *
   * @type {number | undefined}
   */
  from;
  redraw = () => this.draw();
  watch = new ResizeObserver(this.redraw);
  theme = new MutationObserver(this.redraw);
  dark = matchMedia("(prefers-color-scheme: dark)");

  connectedCallback() {
    this.replaceChildren(h("figure", {}, this.canvas, this.shade, this.tip), this.legend);
    this.watch.observe(this.canvas);
    this.dark.addEventListener("change", this.redraw);
    this.theme.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    this.canvas.addEventListener("pointerdown", (event) => this.begin(event));
    this.canvas.addEventListener("pointermove", (event) => this.move(event));
    this.canvas.addEventListener("pointerup", (event) => this.finish(event));
    this.canvas.addEventListener("pointercancel", () => this.drop());
    this.canvas.addEventListener("pointerleave", () => {
      this.tip.hidden = true;
    });
    this.load();
  }

  disconnectedCallback() {
    this.watch.disconnect();
    this.theme.disconnect();
    this.dark.removeEventListener("change", this.redraw);
  }

  async load() {
    try {
      /** @type {{ points: StartedJob[], is_sample: boolean }} */
      const found = await api("GET /jobs/points", { query: JSON.parse(this.dataset.filter ?? "{}") });
      const now = Date.now();
      this.points = found.points.map((point) => place(point, now));
      this.describe(found);
      this.draw();
    } catch (error) {
      this.legend.textContent = `Could not load start times and durations: ${messageOf(error)}`;
    }
  }

  /** @param {{ is_sample: boolean }} found */
  describe({ is_sample: isSample }) {
    const counts = new Map();
    for (const { status: name } of this.points) counts.set(name, (counts.get(name) ?? 0) + 1);
    const words = [...counts].map(([name, number]) => `${count(number)} ${name}`);
    const kind = isSample ? "a sample of " : "";
    this.canvas.setAttribute(
      "aria-label",
      `Start times and durations of ${kind}${count(this.points.length)} jobs: ${words.join(", ")}`,
    );
    if (!this.points.length) {
      this.legend.textContent = "No matching job has started.";
      return;
    }
    this.legend.replaceChildren(
      ...[...counts].map(([name, number]) => h("span", {}, status(name), ` ${count(number)}`)),
      h("span", {}, `${isSample ? "Sample. " : ""}Start time and duration. Drag to select a time range.`),
    );
  }

  // --- the picture

  draw() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width) return;
    const ratio = devicePixelRatio || 1;
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    const pen = this.canvas.getContext("2d");
    if (!pen) return;
    pen.scale(ratio, ratio);
    this.frame = { width, height };
    this.scale();
    const style = getComputedStyle(this);
    this.axes(pen, style);
    for (const point of this.points) shape(pen, point.status, this.x(point.start), this.y(point.seconds), style);
  }

  scale() {
    const starts = this.points.map((point) => point.start);
    const lengths = this.points.map((point) => point.seconds);
    const [first, last] = starts.length
      ? [Math.min(...starts), Math.max(...starts)]
      : [Date.now() - 3_600_000, Date.now()];
    const pad = Math.max((last - first) * 0.02, 1000);
    this.times = [first - pad, last + pad];
    this.lengths = [Math.log(Math.min(1, ...lengths)), Math.log(Math.max(60, ...lengths) * 1.3)];
  }

  /** @type {(time: number) => number} */
  x(time) {
    const [first, last] = this.times;
    return EDGE.left + ((time - first) / (last - first)) * (this.frame.width - EDGE.left - EDGE.right);
  }

  /** @type {(seconds: number) => number} */
  y(seconds) {
    const [low, high] = this.lengths;
    return (
      this.frame.height -
      EDGE.bottom -
      ((Math.log(seconds) - low) / (high - low)) * (this.frame.height - EDGE.top - EDGE.bottom)
    );
  }

  /** @type {(x: number) => number} */
  timeAt(x) {
    const [first, last] = this.times;
    const part = (x - EDGE.left) / (this.frame.width - EDGE.left - EDGE.right);
    return first + Math.min(1, Math.max(0, part)) * (last - first);
  }

  /** @type {(pen: CanvasRenderingContext2D, style: CSSStyleDeclaration) => void} */
  axes(pen, style) {
    pen.font = `12px ${style.fontFamily}`;
    pen.fillStyle = style.getPropertyValue("--muted");
    pen.strokeStyle = style.getPropertyValue("--line");
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    let above = Infinity;
    for (const [seconds, words] of TICKS) {
      const y = this.y(seconds);
      if (y < EDGE.top || y > this.frame.height - EDGE.bottom || above - y < APART) continue;
      above = y;
      line(pen, EDGE.left, y, this.frame.width - EDGE.right, y);
      pen.fillText(words, EDGE.left - 6, y);
    }
    pen.textAlign = "center";
    for (const [time, words] of marks(
      ...this.times,
      Math.max(2, Math.min(MOST_STEPS, Math.floor(this.frame.width / 110))),
    )) {
      const x = this.x(time);
      line(pen, x, EDGE.top, x, this.frame.height - EDGE.bottom);
      const inside = Math.min(Math.max(x, WORDS / 2), this.frame.width - WORDS / 2);
      pen.fillText(words, inside, this.frame.height - EDGE.bottom / 2);
    }
  }

  // --- the pointer

  /** @type {(event: PointerEvent) => void} */
  begin(event) {
    if (event.button) return;
    this.from = event.offsetX;
    this.canvas.setPointerCapture(event.pointerId);
  }

  /** @type {(event: PointerEvent) => void} */
  move(event) {
    if (this.from === undefined) {
      this.point(event);
      return;
    }
    this.tip.hidden = true;
    const [left, right] = inOrder(this.from, event.offsetX);
    this.shade.hidden = right - left < DRAG;
    this.shade.style.left = `${left}px`;
    this.shade.style.width = `${right - left}px`;
  }

  /** @type {(event: PointerEvent) => void} */
  finish(event) {
    if (this.from === undefined) return;
    const [left, right] = inOrder(this.from, event.offsetX);
    this.drop();
    if (right - left >= DRAG) this.brush(left, right);
    else {
      const found = this.nearest(event);
      if (found) location.assign(`/console/jobs/${found.id}`);
    }
  }

  drop() {
    this.from = undefined;
    this.shade.hidden = true;
  }

  /** @type {(left: number, right: number) => void} */
  brush(left, right) {
    const detail = { since: new Date(this.timeAt(left)), until: new Date(this.timeAt(right) + 1) };
    this.dispatchEvent(new CustomEvent("scatter:brush", { bubbles: true, detail }));
  }

  /** @type {(spot: Spot) => Point | undefined} */
  nearest({ offsetX, offsetY }) {
    let best = NEAR * NEAR;
    /** @type {Point | undefined} */
    let found;
    for (const point of this.points) {
      const distance = (this.x(point.start) - offsetX) ** 2 + (this.y(point.seconds) - offsetY) ** 2;
      if (distance < best) {
        best = distance;
        found = point;
      }
    }
    return found;
  }

  /** @type {(spot: Spot) => void} */
  point(event) {
    const found = this.nearest(event);
    this.tip.hidden = !found;
    if (!found) return;
    this.tip.textContent = `${found.status}, ${duration(found.seconds)}, started ${exact(new Date(found.start))}`;
    const isRight = event.offsetX > this.frame.width / 2;
    this.tip.style.left = isRight ? "" : `${event.offsetX + 12}px`;
    this.tip.style.right = isRight ? `${this.frame.width - event.offsetX + 12}px` : "";
    this.tip.style.top = `${Math.max(0, event.offsetY - 36)}px`;
  }
}

/** @type {(point: StartedJob, now: number) => Point} */
function place(point, now) {
  const start = Date.parse(point.started_at);
  const end = point.finished_at ? Date.parse(point.finished_at) : now;
  return { id: point.job_id, status: point.status, start, seconds: Math.max(0.1, (end - start) / 1000) };
}

/** @type {(one: number, other: number) => [number, number]} */
const inOrder = (one, other) => (one < other ? [one, other] : [other, one]);

customElements.define("start-scatter", StartScatter);
