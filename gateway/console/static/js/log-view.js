// `<log-view job="…">`: a job's log, of any length, live. The rows are in `log-rows.js`, the search in `log-search.js`.
//
// The address holds what is shown: `?level=WARNING&logger=seo#1-20480`, where the last part is a line's position.
import { address, api } from "./api.js";
import { drawRow, showText } from "./log-line.js";
import { LogRows, position } from "./log-rows.js";
import { LogSearch } from "./log-search.js";
import { count, h, icon, shown } from "./text.js";
import { toast } from "./toast.js";
import { VirtualRows } from "./virtual-rows.js";

const LEVELS = ["DEBUG", "INFO", "WARNING", "ERROR"];
const STATES = {
  connecting: "Connecting…",
  open: "Live",
  lost: "Connection lost: trying again",
  waiting: "Many logs are open: this one has its turn soon",
  over: "Ended",
};
/** Milliseconds between two drawings of a log that grows; while more lines come at a time than anybody reads, longer. */
const PACE = 200;
const RUSH = 400;
const RUSH_LINES = 100;
/** Milliseconds between two announcements of how much it has grown. */
const ANNOUNCE = 10_000;
/** Milliseconds between two drawings of the counts: each of them costs a layout of the bar. */
const COUNTED = 1000;
const POSITION = /^\d{1,6}-\d{1,15}$/;

class LogView extends HTMLElement {
  #job;
  #rows;
  #view;
  #search;
  #parts = {};
  /** The filter that was asked for last: its rows may still be on their way. */
  #wanted = {};
  #isFollowing = true;
  #unseen = 0;
  #current;
  /** What each row's element shows. */
  #drawn = new WeakMap();
  #painting;
  #counting;
  #painted = 0;
  #announced = 0;
  #state = "connecting";
  #keys = (event) => this.#key(event);
  #hash = () => this.#openLink();

  connectedCallback() {
    this.#job = this.getAttribute("job");
    const query = new URLSearchParams(location.search);
    this.#rows = new LogRows(this.#job, {
      onChange: () => this.#paintSoon(),
      onState: (state) => this.#tellState(state),
      onCounts: () => this.#tellCounts(),
      onLine: (line) => this.#search.add(line),
      onError: (error) => toast(error.message, "bad"),
    });
    this.#search = new LogSearch(this.#job, () => this.#rows.filter, {
      onGo: (id) => this.#goTo(id),
      onFound: () => this.#view?.refresh({ anew: true }) ?? this.#mark(),
      onClose: () => this.#parts.box.focus(),
      here: () => this.#here(),
    });
    this.#build();
    document.addEventListener("keydown", this.#keys, true);
    addEventListener("hashchange", this.#hash);
    this.#load({ level: query.get("level"), logger: query.get("logger") });
  }

  disconnectedCallback() {
    document.removeEventListener("keydown", this.#keys, true);
    removeEventListener("hashchange", this.#hash);
    this.#rows.close();
  }

  // --- its parts

  #build() {
    this.#makeButtons();
    this.#makeBox();
    const { levels, logger, error, wrap, follow, find, state, box, marks, none, new: fresh, announced } = this.#parts;
    const buttons = [error, wrap, follow, find, ...this.#downloads()];
    this.replaceChildren(
      h("div", { class: "log-bar row" }, levels, logger, buttons, state),
      this.#search.element,
      h("div", { class: "log-frame" }, box, marks, none, fresh),
      announced,
    );
    this.#view = new VirtualRows(
      box,
      (number, element) => this.#draw(number, element),
      (where) => this.#scrolled(where),
    );
    this.#view.layer.setAttribute("role", "rowgroup");
    box.addEventListener("click", (event) => this.#clicked(event));
  }

  #makeButtons() {
    const parts = this.#parts;
    parts.levels = h(
      "div",
      { class: "row", role: "group", "aria-label": "Level" },
      LEVELS.map((level) => this.#chip(level)),
    );
    parts.logger = h("select", {
      "aria-label": "Logger",
      onchange: ({ target }) => this.#filter({ logger: target.value || null }),
    });
    parts.error = this.#button("First error", "next", () => this.#firstError(), { "data-key": "e" });
    parts.wrap = this.#button("Wrap", "wrap", () => this.#wrap(), { "aria-pressed": "true", "data-key": "w" });
    parts.follow = this.#button("Follow", "down-arrow", () => this.#setFollowing(!this.#isFollowing), {
      "aria-pressed": "true",
      "data-key": "f",
    });
    parts.find = this.#button("Search", "search", () => this.#search.open(), {
      title: "Ctrl+F, or /",
      "data-key": "/",
      "data-key-too": "Ctrl F",
      "data-key-words": "Search in the log",
    });
  }

  #makeBox() {
    const parts = this.#parts;
    parts.state = h("span", { class: "log-state small muted", role: "status" });
    parts.box = h("div", { class: "log-box", tabindex: 0, role: "table", "aria-label": "Log" });
    parts.marks = h("canvas", { class: "log-marks", "aria-hidden": "true" });
    parts.none = h("p", { class: "log-none", hidden: true }, "No line is of this level and logger.");
    parts.new = h("button", {
      type: "button",
      class: "button primary small log-new",
      hidden: true,
      onclick: () => this.#setFollowing(true),
    });
    parts.announced = h("p", { class: "visually-hidden", role: "status" });
  }

  #button(words, name, act, attributes = {}) {
    return h(
      "button",
      { type: "button", class: "button small", onclick: act, ...attributes },
      icon(name),
      h("span", {}, words),
    );
  }

  #chip(level) {
    const act = () => this.#filter({ level: level === "DEBUG" ? null : level });
    return h("button", { type: "button", class: "chip", "data-level": level, "aria-pressed": "false", onclick: act });
  }

  #downloads() {
    const link = (words, title, filter) =>
      h(
        "button",
        { type: "button", class: "button small quiet", title, onclick: () => this.#download(filter()) },
        icon("download"),
        h("span", {}, words),
      );
    const shownLines = "Download the lines of this level and logger";
    this.#parts.some = link("Download shown", shownLines, () => this.#rows.filter);
    return [link("Download", "Download the whole log", () => ({})), this.#parts.some];
  }

  #download(filter) {
    location.assign(address(`/jobs/${this.#job}/logs`, { ...filter, format: "text" }));
  }

  // --- what is shown

  async #load(filter) {
    const given = Object.fromEntries(Object.entries(filter).filter(([, value]) => value != null));
    this.#wanted = given;
    try {
      await this.#rows.load(given);
    } catch (error) {
      if (given.level || given.logger) return this.#load({}); // of an address that somebody has typed
      this.#parts.box.replaceChildren(
        h("p", { class: "problem", role: "alert" }, `The log cannot be read: ${error.message}`),
      );
      return undefined;
    }
    return this.#openLink();
  }

  /** Change the level or the logger, and stay where one is. */
  async #filter(change) {
    const filter = { ...this.#wanted, ...change };
    this.#wanted = filter;
    const here = this.#here();
    const url = new URL(location.href);
    for (const [name, value] of Object.entries(filter)) {
      if (value == null) url.searchParams.delete(name);
      else url.searchParams.set(name, value);
    }
    history.replaceState(history.state, "", url);
    await this.#rows.load(Object.fromEntries(Object.entries(filter).filter(([, value]) => value != null)));
    this.#view.refresh({ anew: true });
    this.#search.again();
    if (!this.#isFollowing) this.#view.show(await this.#rows.numberOf(here));
  }

  #draw(number, element) {
    const row = this.#rows.row(number);
    const key = row?.id ?? (row ? `note ${number}` : "");
    const state = `${key} ${this.#current === row?.id} ${this.#search.text}`;
    if (element && this.#drawn.get(element) === state && row) return element;
    const isCurrent = row?.id !== undefined && row.id === this.#current;
    const drawn = drawRow(row, { link: `#${row?.id}`, isCurrent, text: this.#search.text }, element);
    this.#drawn.set(drawn, state);
    drawn.dataset.number = number;
    drawn.setAttribute("aria-rowindex", number + 1);
    return drawn;
  }

  #paintSoon() {
    const quiet = performance.now() - this.#painted;
    const pace = this.#rows.count - this.#view.count > RUSH_LINES ? RUSH : PACE;
    this.#painting ??= setTimeout(
      () => {
        this.#painting = undefined;
        this.#painted = performance.now();
        this.#paint();
      },
      Math.max(0, pace - quiet),
    );
  }

  #paint() {
    const before = Number(this.#parts.box.getAttribute("aria-rowcount") ?? 0);
    const rows = this.#rows.count;
    this.#parts.box.setAttribute("aria-rowcount", rows);
    if (!this.#isFollowing && this.#state === "open") this.#unseen += Math.max(0, rows - before);
    if (this.#isFollowing !== this.#view.isStuck) this.#view.stick(this.#isFollowing);
    this.#view.count = rows;
    this.#counting ??= setTimeout(() => {
      this.#counting = undefined;
      this.#tellCounts();
    }, COUNTED);
    this.#tellNothing();
    this.#tellNew();
    this.#mark();
  }

  /** Without a line of the log the page says why; without one that the filter lets through, the log does. */
  #tellNothing() {
    const { hasLines, isEmpty } = this.#rows;
    if (this.hasAttribute("empty") !== isEmpty) this.toggleAttribute("empty", isEmpty);
    this.#parts.none.hidden = hasLines || isEmpty;
  }

  // --- following

  #scrolled({ isAtEnd }) {
    if (isAtEnd !== this.#isFollowing && (isAtEnd || this.#isFollowing)) this.#setFollowing(isAtEnd);
  }

  #setFollowing(isFollowing) {
    this.#isFollowing = isFollowing;
    if (isFollowing) this.#unseen = 0;
    this.#parts.follow.setAttribute("aria-pressed", isFollowing);
    this.#view.stick(isFollowing);
    this.#tellNew();
  }

  #tellNew() {
    const { new: button, announced } = this.#parts;
    const words = `${count(this.#unseen)} new ${this.#unseen === 1 ? "line" : "lines"}`;
    button.hidden = this.#isFollowing || !this.#unseen;
    if (button.textContent !== words) button.textContent = words;
    if (!button.hidden && Date.now() - this.#announced > ANNOUNCE) {
      this.#announced = Date.now();
      announced.textContent = words;
    }
  }

  #tellState(state) {
    this.#state = state;
    const words = STATES[state];
    this.#parts.state.textContent = words;
    this.#parts.state.dataset.state = state;
  }

  #tellCounts() {
    const { levels, loggers, lines } = this.#rows.counts;
    const { level: wanted = "DEBUG", logger = "" } = this.#rows.filter;
    const of = (names) => names.reduce((sum, name) => sum + (levels[name] ?? 0), 0);
    const errors = of(["ERROR", "CRITICAL"]);
    const known = { DEBUG: lines, INFO: lines - of(["DEBUG"]), WARNING: errors + of(["WARNING"]), ERROR: errors };
    for (const chip of this.#parts.levels.children) {
      const { level } = chip.dataset;
      const words = `${level === "DEBUG" ? "All" : level === "ERROR" ? "Errors" : `${level[0]}${level.slice(1).toLowerCase()} and up`} ${count(known[level])}`;
      if (chip.textContent !== words) chip.textContent = words;
      if (chip.ariaPressed !== String(level === wanted)) chip.ariaPressed = level === wanted;
    }
    this.#parts.error.disabled = !errors;
    this.#parts.some.hidden = !Object.keys(this.#rows.filter).length;
    this.#tellLoggers(loggers, logger);
  }

  #tellLoggers(loggers, chosen) {
    const { logger: select } = this.#parts;
    const names = loggers.map(({ name }) => name).filter(Boolean);
    if (chosen && !names.includes(chosen)) names.unshift(chosen);
    if (select.dataset.names !== names.join("\n")) {
      select.dataset.names = names.join("\n");
      select.replaceChildren(
        h("option", { value: "" }, "All loggers"),
        ...names.map((name) => h("option", { value: name }, shown(name, 60))),
      );
    }
    if (select.value !== chosen) select.value = chosen;
  }

  // --- going somewhere

  /** The position of the first row in sight. */
  #here() {
    const [first, last] = this.#view.inSight;
    for (let number = first; number <= last; number += 1) {
      const id = this.#rows.row(number)?.id;
      if (id) return id;
    }
    return this.#rows.end;
  }

  async #goTo(id) {
    this.#setFollowing(false);
    this.#current = id;
    this.scrollIntoView({ block: "nearest" });
    const number = await this.#rows.numberOf(id);
    this.#view.count = this.#rows.count;
    this.#view.show(number);
    this.#view.refresh({ anew: true });
  }

  async #openLink() {
    const id = location.hash.slice(1);
    if (id === "first-error") {
      await this.#firstError();
      this.#parts.box.focus();
    }
    if (!POSITION.test(id)) return;
    const query = { from: `${position(id)[0]}-${Math.max(0, position(id)[1] - 1)}`, to: id, limit: 1 };
    if (Object.keys(this.#rows.filter).length) {
      const there = await api(`GET /jobs/${this.#job}/logs/search`, {
        query: { ...this.#rows.filter, ...query },
      }).catch(() => ({}));
      if (!there.lines) await this.#filter({ level: null, logger: null });
    }
    await this.#goTo(id);
    this.#parts.box.focus();
  }

  async #firstError() {
    const query = { logger: this.#rows.filter.logger, level: "ERROR", limit: 1 };
    const { positions } = await api(`GET /jobs/${this.#job}/logs/search`, { query });
    if (positions.length) await this.#goTo(positions[0]);
    else toast("This logger has no errors.");
  }

  #wrap() {
    const isWrapped = this.#parts.wrap.getAttribute("aria-pressed") !== "true";
    this.#parts.wrap.setAttribute("aria-pressed", isWrapped);
    this.toggleAttribute("nowrap", !isWrapped);
    this.#view.refresh({ anew: true });
  }

  #clicked({ target }) {
    const logger = target.closest("[data-logger]");
    const whole = target.closest("[data-whole]");
    if (logger) this.#filter({ logger: logger.dataset.logger });
    if (whole) this.#showWhole(whole.closest("[data-number]"));
  }

  async #showWhole(element) {
    const row = this.#rows.row(Number(element.dataset.number));
    const [attempt] = position(row.id);
    const query = { from: `${attempt}-${row.start}`, limit: 1, max_length: 1 << 20 };
    const { lines } = await api(`GET /jobs/${this.#job}/logs/lines`, { query });
    if (lines.length) showText(`Line ${row.id}`, lines[0].msg);
  }

  // --- keys

  #key(event) {
    if (event.defaultPrevented || document.querySelector("dialog[open]")) return;
    const isFind =
      (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "f" && event.target !== this.#search.input;
    if (isFind) this.#search.open();
    else if (event.key === "Escape" && this.#search.isOpen) this.#search.close();
    else if (
      event.target !== this.#parts.box ||
      event.ctrlKey ||
      event.altKey ||
      event.metaKey ||
      !this.#act(event.key)
    )
      return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** What a key does while the rows have the focus. Returns whether it does something. Others are `data-key`s. */
  #act(key) {
    const acts = {
      ArrowDown: () => this.#step(1),
      ArrowUp: () => this.#step(-1),
      Home: () => this.#toStart(),
      End: () => this.#setFollowing(true),
      Enter: () => this.#enter(),
      ...(this.#search.isOpen && { n: () => this.#search.step(1), N: () => this.#search.step(-1) }),
    };
    if (!acts[key]) return false;
    acts[key]();
    return true;
  }

  #toStart() {
    this.#setFollowing(false);
    this.#view.show(0);
  }

  /** Make the next line, or the one before, the current one. */
  #step(by) {
    const at = this.#view.layer.querySelector("[aria-current]");
    const [first, last] = this.#view.inSight;
    const number = at ? Number(at.dataset.number) + by : by > 0 ? first : last;
    const row = this.#rows.row(number);
    if (!row?.id) return;
    this.#current = row.id;
    this.#setFollowing(false);
    if (number <= first || number >= last - 1) this.#view.move(by * 20);
    this.#view.refresh({ anew: true });
    this.#parts.announced.textContent = `${row.level} ${shown(row.msg, 200)}`;
  }

  #enter() {
    const element = this.#view.layer.querySelector("[aria-current]");
    if (!element) return;
    history.replaceState(history.state, "", `#${this.#current}`);
    if (element.querySelector("[data-whole]")) this.#showWhole(element);
  }

  // --- marks beside the scroll bar

  #mark() {
    const { marks, box } = this.#parts;
    const found = this.#search.marks;
    if (!found.length && marks.dataset.marks === "0") return;
    const ratio = devicePixelRatio;
    const [width, height] = [8, box.clientHeight];
    if (marks.width !== width * ratio || marks.height !== height * ratio)
      [marks.width, marks.height] = [width * ratio, height * ratio];
    const pen = marks.getContext("2d");
    pen.clearRect(0, 0, marks.width, marks.height);
    pen.fillStyle = getComputedStyle(this).getPropertyValue("--accent");
    const thin = 2 * ratio;
    for (const [attempt, start, end] of found) {
      // a hit is named by where its line ends
      const top = this.#rows.share([attempt, end ? start : start - 1]);
      const bottom = end ? this.#rows.share([attempt, end]) : top;
      pen.fillRect(
        0,
        Math.min(Math.floor(top * marks.height), marks.height - thin),
        marks.width,
        Math.max(thin, (bottom - top) * marks.height),
      );
    }
    marks.dataset.marks = found.length;
  }
}

customElements.define("log-view", LogView);
