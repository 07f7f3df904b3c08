// `<line-chart>`: lines over time. Drawn by uPlot; read by keyboard (the arrow keys go from value to value), and as a table.
//
// `chart.show({ at: [seconds since 1970], lines: [{ name, values, colour: "--good" }] })`; null in `values` is a gap.
// `unit` (an attribute) stands behind each value. Charts with the same `together` share their cursor.
import uPlot from "../vendor/uplot.esm.js";
import { h } from "./dom.js";
import { count } from "./text.js";

const HEIGHT = 88;
/** Lines differ in their colour and in their strokes. */
const COLOURS = ["--accent", "--wait", "--warn", "--bad"];
/** @type {number[][]} */
const STROKES = [[], [7, 3], [2, 3], [9, 3, 2, 3]];
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const THEMES = matchMedia("(prefers-color-scheme: dark)");

/**
 * `at` is in seconds since 1970; null in `values` is a gap.
 *
 * @typedef {{ name: string, values: (number | null)[], colour?: string | undefined }} Line
 * @typedef {{ at: number[], lines: Line[] }} Picture
 */

export class LineChart extends HTMLElement {
  /** @type {uPlot | undefined} */
  #plot;
  /** @type {Picture} */
  #data = { at: [], lines: [] };
  /** @type {number | null} */
  #place = null;
  #slider = h("div", {
    class: "plot",
    role: "slider",
    tabindex: "0",
    "aria-valuemin": "0",
    "aria-valuemax": "0",
    "aria-valuenow": "0",
    onkeydown: (event) => this.#move(event),
  });
  #legend = h("ul", { class: "legend" });
  #table = h("div", { class: "values scroll", tabindex: "0", role: "region", hidden: true });
  #resized = new ResizeObserver(() => this.#resize());
  #redraw = () => this.#plot?.redraw(false);

  connectedCallback() {
    if (!this.#slider.isConnected) this.#build();
    this.#resized.observe(this);
    THEMES.addEventListener("change", this.#redraw);
    document.addEventListener("themechange", this.#redraw);
    if (this.#data.at.length) this.show(this.#data);
  }

  disconnectedCallback() {
    this.#resized.disconnect();
    THEMES.removeEventListener("change", this.#redraw);
    document.removeEventListener("themechange", this.#redraw);
    this.#plot?.destroy();
    this.#plot = undefined;
  }

  /** @param {Picture} data */
  show(data) {
    const isSame = namesOf(data) === namesOf(this.#data);
    this.#data = data;
    if (!this.isConnected) return;
    if (this.#plot && isSame) this.#plot.setData([data.at, ...data.lines.map(({ values }) => values)]);
    else this.#draw();
    this.#tell();
    if (!this.#table.hidden) this.#fill();
  }

  #build() {
    const label = this.getAttribute("label") ?? "";
    this.#slider.setAttribute("aria-label", `${label}, value by value`);
    this.#table.setAttribute("aria-label", `${label}, as a table`);
    const named = { "aria-expanded": "false", "aria-label": `${label} as a table` };
    const button = h("button", { type: "button", class: "button quiet small", ...named }, "Table");
    button.addEventListener("click", () => this.#toggle(button));
    this.append(
      h("div", { class: "chart-head" }, h("span", { class: "chart-title" }, label), button, this.#legend),
      this.#slider,
      this.#table,
    );
  }

  #draw() {
    this.#plot?.destroy();
    const { at, lines } = this.#data;
    /** @type {(name: string) => string} */
    const colour = (name) => getComputedStyle(this).getPropertyValue(name).trim();
    const axis = {
      stroke: () => colour("--muted"),
      font: `11px ${colour("--sans")}`,
      grid: { stroke: () => colour("--line"), width: 1 },
      ticks: { show: false },
    };
    const together = this.getAttribute("together");
    /** @type {ConstructorParameters<typeof uPlot>[0]} */
    const options = {
      width: Math.max(120, this.#slider.clientWidth),
      height: HEIGHT,
      legend: { show: false },
      cursor: {
        y: false,
        drag: { x: false },
        points: { size: 6 },
        sync: together ? { key: together, setSeries: false } : undefined,
      },
      scales: { y: { range: (_, low, high) => [Math.min(0, low), high > 0 ? high * 1.05 : 1] } },
      axes: [
        {
          ...axis,
          grid: { show: false },
          size: 22,
          space: 64,
          values: (_, ticks) => ticks.map((tick) => short(tick, ticks)),
        },
        { ...axis, size: 46, space: 32, values: (_, ticks) => ticks.map(brief) },
      ],
      series: [
        {},
        ...lines.map((line, number) => ({
          label: line.name,
          stroke: () => colour(line.colour ?? COLOURS[number]),
          dash: STROKES[number],
          width: 1.5,
          points: { show: at.length < 3, size: 5 },
        })),
      ],
      hooks: { setCursor: [(plot) => this.#point(plot.cursor.idx)] },
    };
    this.#plot = new uPlot(options, [at, ...lines.map(({ values }) => values)], this.#slider);
    this.#plot.root.setAttribute("aria-hidden", "true");
    this.#legend.replaceChildren(...lines.map((line, number) => this.#entry(line, number)));
  }

  /** @type {(line: Line, number: number) => HTMLElement} */
  #entry(line, number) {
    const space = "http://www.w3.org/2000/svg";
    const svg = document.createElementNS(space, "svg");
    const stroke = document.createElementNS(space, "line");
    svg.setAttribute("class", "stroke");
    svg.setAttribute("viewBox", "0 0 20 4");
    svg.setAttribute("aria-hidden", "true");
    for (const [name, value] of Object.entries({
      x1: 0,
      x2: 20,
      y1: 2,
      y2: 2,
      "stroke-dasharray": STROKES[number].join(" "),
    }))
      stroke.setAttribute(name, String(value));
    svg.append(stroke);
    svg.style.color = `var(${line.colour ?? COLOURS[number]})`;
    return h("li", {}, svg, h("span", {}, line.name), h("b", {}, ""));
  }

  #resize() {
    const width = this.#slider.clientWidth;
    if (this.#plot && width && width !== this.#plot.width) this.#plot.setSize({ width, height: HEIGHT });
  }

  /**
   * The value under the cursor, else the last one.
   *
   * @type {(place: number | null | undefined) => void}
   */
  #point(place) {
    this.#place = place ?? null;
    this.#tell();
  }

  #tell() {
    const { at, lines } = this.#data;
    const place = this.#place ?? at.length - 1;
    lines.forEach((line, number) => {
      const value = this.#legend.children[number]?.lastChild;
      if (value) value.textContent = place < 0 ? "" : this.#said(line.values[place]);
    });
    this.#slider.setAttribute("aria-valuemax", String(Math.max(0, at.length - 1)));
    this.#slider.setAttribute("aria-valuenow", String(Math.max(0, place)));
    this.#slider.setAttribute(
      "aria-valuetext",
      place < 0
        ? "No data yet"
        : `${clock(at[place])}: ${lines.map((line) => `${line.name} ${this.#said(line.values[place])}`).join(", ")}`,
    );
  }

  /** @type {(value: number | null | undefined) => string} */
  #said(value) {
    if (value == null) return "–";
    const unit = this.getAttribute("unit");
    return unit ? `${count(value)} ${unit}` : count(value);
  }

  /** @type {(event: KeyboardEvent) => void} */
  #move(event) {
    const last = this.#data.at.length - 1;
    const now = this.#place ?? last;
    /** @type {Record<string, number>} */
    const steps = {
      ArrowRight: now + 1,
      ArrowUp: now + 1,
      ArrowLeft: now - 1,
      ArrowDown: now - 1,
      PageUp: now + 10,
      PageDown: now - 10,
      Home: 0,
      End: last,
    };
    const wanted = steps[event.key];
    if (wanted === undefined || last < 0) return;
    event.preventDefault();
    const place = Math.max(0, Math.min(last, wanted));
    this.#plot?.setCursor({ left: this.#plot.valToPos(this.#data.at[place], "x"), top: 0 });
    this.#point(place);
  }

  /** @type {(button: HTMLElement) => void} */
  #toggle(button) {
    this.#table.hidden = !this.#table.hidden;
    button.setAttribute("aria-expanded", String(!this.#table.hidden));
    if (!this.#table.hidden) this.#fill();
  }

  #fill() {
    const { at, lines } = this.#data;
    const head = h(
      "tr",
      {},
      h("th", { scope: "col" }, "Time"),
      lines.map(({ name }) => h("th", { scope: "col", class: "number" }, name)),
    );
    const rows = at.map((time, place) =>
      h(
        "tr",
        {},
        h("td", {}, clock(time)),
        lines.map(({ values }) => h("td", { class: "number" }, this.#said(values[place]))),
      ),
    );
    this.#table.replaceChildren(h("table", { class: "table" }, h("thead", {}, head), h("tbody", {}, rows)));
  }
}

/** @type {(data: Picture) => string} */
const namesOf = ({ lines }) => lines.map(({ name }) => name).join();

/** @type {(seconds: number) => string} */
const clock = (seconds) => CLOCK.format(seconds * 1000);
/** @type {(tick: number, ticks: number[]) => string} */
const short = (tick, ticks) =>
  ticks.length > 1 && ticks[1] - ticks[0] >= 60 ? clock(tick).slice(0, 5) : clock(tick);
const BRIEF = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
/** @type {(tick: number) => string} */
const brief = (tick) => BRIEF.format(tick);

customElements.define("line-chart", LineChart);
