// `<log-view job="…">`: a job's log, of any length, live. The rows are in `log-rows.js`, the search in `log-search.js`.
//
// The address holds what is shown: `?level=WARNING&logger=seo#1-20480`, where the last part is a line's position.
import { address, api, messageOf } from "./api.js";
import { above, h } from "./dom.js";
import { LogBar } from "./log-bar.js";
import { LogCursor } from "./log-cursor.js";
import { drawRow, showText } from "./log-line.js";
import { LogMarks } from "./log-marks.js";
import { LogNews } from "./log-news.js";
import { position } from "./log-positions.js";

import { LogRows } from "./log-rows.js";
import { LogSearch } from "./log-search.js";
import { Pace } from "./pace.js";
import { toast } from "./toast.js";
import { VirtualRows } from "./virtual-rows.js";

/** Milliseconds between two drawings of a log that grows; and while more lines come at a time than anybody can read. */
const PACE = 200;
const RUSH = 400;
const RUSH_LINES = 100;
/** Milliseconds between two drawings of the counts: each of them costs a layout of the bar. */
const COUNTED = 1000;
const POSITION = /^\d{1,6}-\d{1,15}$/;

/** @typedef {import("./log-rows.js").Row} Row */
/** @typedef {{ level?: string | null | undefined, logger?: string | null | undefined }} Wanted */

class LogView extends HTMLElement {
  #job = this.getAttribute("job") ?? "";
  #rows = new LogRows(this.#job, {
    folded: JSON.parse(this.getAttribute("folded") ?? "{}"),
    onChange: () => this.#paintSoon(),
    onState: (state) => this.#tellState(state),
    onCounts: () => this.#tellCounts(),
    onLine: (line) => this.#search.add(line),
    onError: (error) => toast(messageOf(error), "bad"),
  });
  #search = new LogSearch(this.#job, () => this.#rows.filter, {
    onGo: (id) => this.#goTo(id),
    onFound: () => {
      this.#view.refresh();
      this.#mark();
    },
    onClose: () => this.#box.focus(),
    here: () => this.#here(),
  });
  #bar = new LogBar({
    onFilter: (change) => this.#filter(change),
    onFirstError: () => this.#firstError(),
    onWrap: (isWrapped) => this.#wrap(isWrapped),
    onFollow: () => this.#setFollowing(!this.#isFollowing),
    onFind: () => this.#search.open(),
    onDownload: (isAll) => this.#download(isAll ? {} : this.#rows.filter),
  });
  #box = h("div", { class: "log-box", tabindex: 0, role: "table", "aria-label": "Log" });
  #marks = new LogMarks();
  #none = h("p", { class: "log-none", hidden: true }, "No lines match this level and logger.");
  #news = new LogNews(() => this.#setFollowing(true));
  #view = new VirtualRows(
    this.#box,
    (number, element) => this.#draw(number, element),
    (where) => this.#scrolled(where),
  );
  #cursor = new LogCursor(this.#view, this.#rows, this.#news, {
    onMove: () => this.#setFollowing(false),
    onWhole: (element) => this.#showWhole(element),
  });
  /**
   * The filter that was asked for last: its rows may still be on their way.
   *
   * @type {Wanted}
   */
  #wanted = {};
  #isFollowing = true;
  /**
   * What each element shows at present: its row, and everything else that it is drawn from, as a string to compare.
   *
   * @type {WeakMap<HTMLElement, { row: Row | undefined, state: string }>}
   */
  #drawn = new WeakMap();
  #painting = new Pace(() => this.#paint());
  #counting = new Pace(() => this.#tellCounts());
  /** @type {import("./streams.js").State} */
  #state = "connecting";
  #keys = (/** @type {KeyboardEvent} */ event) => this.#key(event);
  #hash = () => this.#openLink();

  connectedCallback() {
    this.replaceChildren(
      this.#bar.element,
      this.#search.element,
      h("div", { class: "log-frame" }, this.#box, this.#marks.element, this.#none, this.#news.button),
      this.#news.element,
    );
    this.#view.layer.setAttribute("role", "rowgroup");
    this.#box.addEventListener("click", (event) => this.#clicked(event));
    document.addEventListener("keydown", this.#keys, true);
    addEventListener("hashchange", this.#hash);
    const query = new URLSearchParams(location.search);
    this.#load({ level: query.get("level"), logger: query.get("logger") });
  }

  disconnectedCallback() {
    document.removeEventListener("keydown", this.#keys, true);
    removeEventListener("hashchange", this.#hash);
    this.#rows.close();
  }

  /** @param {import("./log-rows.js").Filter} filter */
  #download(filter) {
    location.assign(address(`/jobs/${this.#job}/logs`, { ...filter, format: "text" }));
  }

  // --- the filter, and the rows that it shows

  /** @type {(filter: Wanted) => Promise<void>} */
  async #load(filter) {
    this.#wanted = given(filter);
    try {
      await this.#rows.load(given(filter));
    } catch (error) {
      if (filter.level || filter.logger) return this.#load({}); // somebody may have typed the filter into the address
      const words = `Could not load the log: ${messageOf(error)}`;
      this.#box.replaceChildren(h("p", { class: "problem", role: "alert" }, words));
      return undefined;
    }
    await this.#openLink();
    this.#search.begin();
  }

  /**
   * Change the level or the logger, and keep the place in the log.
   *
   * @param {Wanted} change
   */
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
    await this.#rows.load(given(filter));
    this.#view.refresh();
    this.#search.again();
    if (!this.#isFollowing) this.#view.show(await this.#rows.numberOf(here));
  }

  /** @type {(number: number, element?: HTMLElement) => HTMLElement} */
  #draw(number, element) {
    const row = this.#rows.row(number);
    const id = row && "id" in row ? row.id : undefined;
    const isCurrent = id !== undefined && id === this.#cursor.id;
    const { text } = this.#search;
    const state = JSON.stringify([id ?? row, row && "folded" in row && row.folded, isCurrent, text]);
    if (element && row && this.#drawn.get(element)?.state === state) return element;
    const drawn = drawRow(row, { link: `#${id}`, isCurrent, text }, element);
    this.#drawn.set(drawn, { row, state });
    drawn.dataset.number = String(number);
    drawn.setAttribute("aria-rowindex", String(number + 1));
    return drawn;
  }

  #paintSoon() {
    this.#painting.soon(this.#rows.count - this.#view.count > RUSH_LINES ? RUSH : PACE);
  }

  #paint() {
    const before = Number(this.#box.getAttribute("aria-rowcount") ?? 0);
    const rows = this.#rows.count;
    this.#box.setAttribute("aria-rowcount", String(rows));
    if (!this.#isFollowing && this.#state === "open") this.#news.add(rows - before);
    if (this.#isFollowing !== this.#view.isStuck) this.#view.stick(this.#isFollowing);
    this.#view.count = rows;
    this.#counting.soon(COUNTED);
    this.#tellNothing();
    this.#news.tell(this.#isFollowing);
    this.#mark();
  }

  /** If the log has no lines, the page says why. If no line matches the filter, the log says so. */
  #tellNothing() {
    const { hasLines, isEmpty } = this.#rows;
    if (this.hasAttribute("empty") !== isEmpty) this.toggleAttribute("empty", isEmpty);
    this.#none.hidden = hasLines || isEmpty;
  }

  // --- following

  /** @type {(where: { isAtEnd: boolean }) => void} */
  #scrolled({ isAtEnd }) {
    if (isAtEnd !== this.#isFollowing && (isAtEnd || this.#isFollowing)) this.#setFollowing(isAtEnd);
  }

  /** @param {boolean} isFollowing */
  #setFollowing(isFollowing) {
    this.#isFollowing = isFollowing;
    this.#bar.setFollowing(isFollowing);
    this.#view.stick(isFollowing);
    this.#news.tell(isFollowing);
  }

  /** @param {import("./streams.js").State} state */
  #tellState(state) {
    this.#state = state;
    this.#bar.tellState(state);
  }

  #tellCounts() {
    this.#bar.tellCounts(this.#rows.counts, this.#rows.filter);
  }

  // --- going somewhere

  /** The position of the first row in sight. */
  #here() {
    const [first, last] = this.#view.inSight;
    for (let number = first; number <= last; number += 1) {
      const row = this.#rows.row(number);
      if (row && "id" in row) return row.id;
    }
    return this.#rows.end;
  }

  /** @type {(id: PositionId) => Promise<void>} */
  async #goTo(id) {
    this.#setFollowing(false);
    this.#cursor.id = id;
    this.scrollIntoView({ block: "nearest" });
    const number = await this.#rows.unfolded(id);
    const row = this.#rows.row(number);
    // an address may name a place inside the line
    if (row && "id" in row) this.#cursor.id = row.id;
    this.#view.count = this.#rows.count;
    this.#view.show(number);
    this.#view.refresh();
  }

  async #openLink() {
    const id = location.hash.slice(1);
    if (id === "first-error") {
      await this.#firstError();
      this.#box.focus();
    }
    if (!POSITION.test(id)) return;
    const query = { from: `${position(id)[0]}-${Math.max(0, position(id)[1] - 1)}`, to: id, limit: 1 };
    if (Object.keys(this.#rows.filter).length) {
      /** @type {{ lines?: number }} */
      const there = await api(`GET /jobs/${this.#job}/logs/search`, {
        query: { ...this.#rows.filter, ...query },
      }).catch(() => ({}));
      if (!there.lines) await this.#filter({ level: null, logger: null });
    }
    await this.#goTo(id);
    this.#box.focus();
  }

  async #firstError() {
    const query = { logger: this.#rows.filter.logger, level: "ERROR", limit: 1 };
    /** @type {LogFound} */
    const { positions } = await api(`GET /jobs/${this.#job}/logs/search`, { query });
    if (positions.length) await this.#goTo(positions[0]);
    else toast("This logger has no errors.");
  }

  /** @param {boolean} isWrapped */
  #wrap(isWrapped) {
    this.toggleAttribute("nowrap", !isWrapped);
    this.#view.refresh();
  }

  /** @param {Event} event */
  #clicked(event) {
    const logger = above(event, "[data-logger]");
    const row = above(event, "[data-number]");
    if (logger) this.#filter({ logger: logger.dataset.logger });
    if (row && above(event, "[data-whole]")) this.#showWhole(row);
    const fold = above(event, "[data-unfold]") && row && this.#drawn.get(row)?.row;
    if (fold && "id" in fold) this.#goTo(`${position(fold.id)[0]}-${fold.start + 1}`);
  }

  /** @param {HTMLElement} element of the line */
  async #showWhole(element) {
    const row = this.#drawn.get(element)?.row;
    if (!row || !("id" in row)) return;
    const [attempt] = position(row.id);
    const query = { from: `${attempt}-${row.start}`, limit: 1, max_length: 1 << 20 };
    try {
      /** @type {{ lines: LogLine[] }} */
      const { lines } = await api(`GET /jobs/${this.#job}/logs/lines`, { query });
      if (lines[0]) showText(`Line ${row.id}`, lines[0].msg);
    } catch (error) {
      toast(messageOf(error), "bad");
    }
  }

  // --- keys

  /** @type {(event: KeyboardEvent) => void} */
  #key(event) {
    if (event.defaultPrevented || document.querySelector("dialog[open]")) return;
    const isFind =
      (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "f" && event.target !== this.#search.input;
    if (isFind) this.#search.open();
    else if (event.key === "Escape" && this.#search.isOpen) this.#search.close();
    else if (event.target !== this.#box || event.ctrlKey || event.altKey || event.metaKey || !this.#act(event.key))
      return;
    event.preventDefault();
    event.stopPropagation();
  }

  /**
   * Handles a key while the rows have the focus. Returns whether the key does something. Others are `data-key`s.
   *
   * @type {(key: string) => boolean}
   */
  #act(key) {
    /** @type {Record<string, () => unknown>} */
    const acts = {
      ArrowDown: () => this.#cursor.step(1),
      ArrowUp: () => this.#cursor.step(-1),
      Home: () => this.#toStart(),
      End: () => this.#setFollowing(true),
      Enter: () => this.#cursor.enter(),
      ...(this.#search.isOpen && { n: () => this.#search.step(1), N: () => this.#search.step(-1) }),
    };
    const act = acts[key];
    act?.();
    return act !== undefined;
  }

  #toStart() {
    this.#setFollowing(false);
    this.#view.show(0);
  }

  #mark() {
    this.#marks.draw(this.#search.marks, this.#box.clientHeight, (place) => this.#rows.share(place));
  }
}

/** @type {(filter: Wanted) => import("./log-rows.js").Filter} */
const given = (filter) => Object.fromEntries(Object.entries(filter).filter(([, value]) => value != null));

customElements.define("log-view", LogView);
