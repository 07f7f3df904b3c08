// `<start-scatter data-filter='{"spider": "seo"}'>`: jobs by their start and how long they ran. The outcome is a colour
// and a shape. Dragging over a time asks for the jobs that started then: the event `scatter:brush` has `since` and
// `until`. A click opens the job. The keyboard's way to the same are the fields "Started from" and "before".
import { api } from "./api.js";
import { status } from "./status.js";
import { count, duration, h } from "./text.js";
import { exact } from "./times.js";

const EDGE = { left: 56, right: 12, top: 10, bottom: 22 };
const RADIUS = 4;
// pixels from the pointer within which a job is meant, and which a drag takes at least
const NEAR = 12;
// pixels between two words of an axis
const APART = 16;
const WORDS = 84;
const DRAG = 5;
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
const STEPS = [1, 5, 15, 60, 300, 900, 3600, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000, 31_536_000];
const MOST_STEPS = 8;
const COLOURS = {
  finished: "--good",
  partial: "--warn",
  error: "--bad",
  cancelled: "--calm",
  running: "--accent",
  paused: "--warn",
  pending: "--wait",
};

class StartScatter extends HTMLElement {
  connectedCallback() {
    this.canvas = h("canvas", { role: "img", "aria-label": "Starts and durations of jobs" });
    this.tip = h("div", { class: "tip", hidden: true });
    this.shade = h("div", { class: "brush", hidden: true });
    this.legend = h("figcaption", {}, "Loading starts and durations…");
    this.replaceChildren(h("figure", {}, this.canvas, this.shade, this.tip), this.legend);
    this.points = [];
    this.watch = new ResizeObserver(() => this.draw());
    this.watch.observe(this.canvas);
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.redraw = () => this.draw();
    this.dark.addEventListener("change", this.redraw);
    this.theme = new MutationObserver(this.redraw);
    this.theme.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    this.canvas.addEventListener("pointerdown", (event) => this.begin(event));
    this.canvas.addEventListener("pointermove", (event) => this.move(event));
    this.canvas.addEventListener("pointerup", (event) => this.finish(event));
    this.canvas.addEventListener("pointercancel", () => this.drop());
    this.canvas.addEventListener("pointerleave", () => (this.tip.hidden = true));
    this.load();
  }

  disconnectedCallback() {
    this.watch.disconnect();
    this.theme.disconnect();
    this.dark.removeEventListener("change", this.redraw);
  }

  async load() {
    try {
      const found = await api("GET /jobs/points", { query: JSON.parse(this.dataset.filter) });
      const now = Date.now();
      this.points = found.points.map((point) => place(point, now));
      this.describe(found);
      this.draw();
    } catch (error) {
      this.legend.textContent = `Starts and durations could not be loaded: ${error.message}`;
    }
  }

  describe({ is_sample: isSample }) {
    const counts = new Map();
    for (const { status: name } of this.points) counts.set(name, (counts.get(name) ?? 0) + 1);
    const words = [...counts].map(([name, number]) => `${count(number)} ${name}`);
    const kind = isSample ? "a sample of " : "";
    this.canvas.setAttribute(
      "aria-label",
      `Starts and durations of ${kind}${count(this.points.length)} jobs: ${words.join(", ")}`,
    );
    if (!this.points.length) {
      this.legend.textContent = "No job that matches has started.";
      return;
    }
    this.legend.replaceChildren(
      ...[...counts].map(([name, number]) => h("span", {}, status(name), ` ${count(number)}`)),
      h(
        "span",
        {},
        `${isSample ? "A sample. " : ""}Start and duration. Drag over a time to see the jobs that started then.`,
      ),
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

  x(time) {
    const [first, last] = this.times;
    return EDGE.left + ((time - first) / (last - first)) * (this.frame.width - EDGE.left - EDGE.right);
  }

  y(seconds) {
    const [low, high] = this.lengths;
    return (
      this.frame.height -
      EDGE.bottom -
      ((Math.log(seconds) - low) / (high - low)) * (this.frame.height - EDGE.top - EDGE.bottom)
    );
  }

  timeAt(x) {
    const [first, last] = this.times;
    const part = (x - EDGE.left) / (this.frame.width - EDGE.left - EDGE.right);
    return first + Math.min(1, Math.max(0, part)) * (last - first);
  }

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

  begin(event) {
    if (event.button) return;
    this.from = event.offsetX;
    this.canvas.setPointerCapture(event.pointerId);
  }

  move(event) {
    if (this.from === undefined) {
      this.point(event);
      return;
    }
    this.tip.hidden = true;
    const [left, right] = [this.from, event.offsetX].sort((a, b) => a - b);
    this.shade.hidden = right - left < DRAG;
    this.shade.style.left = `${left}px`;
    this.shade.style.width = `${right - left}px`;
  }

  finish(event) {
    if (this.from === undefined) return;
    const [left, right] = [this.from, event.offsetX].sort((a, b) => a - b);
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

  brush(left, right) {
    const detail = { since: new Date(this.timeAt(left)), until: new Date(this.timeAt(right) + 1) };
    this.dispatchEvent(new CustomEvent("scatter:brush", { bubbles: true, detail }));
  }

  nearest({ offsetX, offsetY }) {
    let [best, found] = [NEAR * NEAR, undefined];
    for (const point of this.points) {
      const distance = (this.x(point.start) - offsetX) ** 2 + (this.y(point.seconds) - offsetY) ** 2;
      if (distance < best) [best, found] = [distance, point];
    }
    return found;
  }

  point(event) {
    const found = this.points.length && this.nearest(event);
    this.tip.hidden = !found;
    if (!found) return;
    this.tip.textContent = `${found.status}, ran ${duration(found.seconds)}, started ${exact(new Date(found.start))}`;
    const isRight = event.offsetX > this.frame.width / 2;
    this.tip.style.left = isRight ? "" : `${event.offsetX + 12}px`;
    this.tip.style.right = isRight ? `${this.frame.width - event.offsetX + 12}px` : "";
    this.tip.style.top = `${Math.max(0, event.offsetY - 36)}px`;
  }
}

function place(point, now) {
  const start = Date.parse(point.started_at);
  const end = point.finished_at ? Date.parse(point.finished_at) : now;
  return { id: point.job_id, status: point.status, start, seconds: Math.max(0.1, (end - start) / 1000) };
}

function line(pen, x1, y1, x2, y2) {
  pen.beginPath();
  pen.moveTo(Math.round(x1) + 0.5, Math.round(y1) + 0.5);
  pen.lineTo(Math.round(x2) + 0.5, Math.round(y2) + 0.5);
  pen.stroke();
}

/** As the status's own icon: a disc, a half disc, a cross, a ring with a stroke; those that have not ended are rings. */
function shape(pen, name, x, y, style) {
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

/** Round times of the user's zone between two, at most `most` of them, with their words. */
function* marks(first, last, most) {
  const step = (STEPS.find((one) => (last - first) / (one * 1000) <= most) ?? STEPS.at(-1)) * 1000;
  const zone = new Date(first).getTimezoneOffset() * 60_000;
  const format = new Intl.DateTimeFormat(
    "en-GB",
    step < 86_400_000
      ? {
          hour: "2-digit",
          minute: "2-digit",
          ...(step < 60_000 && { second: "2-digit" }),
          ...(last - first > 86_400_000 && { day: "numeric", month: "short" }),
        }
      : { day: "numeric", month: "short" },
  );
  for (let time = Math.ceil((first - zone) / step) * step + zone; time < last; time += step)
    yield [time, format.format(time)];
}

customElements.define("start-scatter", StartScatter);
