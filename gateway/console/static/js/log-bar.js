// The bar above a log: which lines are shown, how many there are of each level, and the buttons.
import { h, icon } from "./dom.js";
import { count, shown } from "./text.js";

/**
 * @typedef {import("./log-rows.js").Filter} Filter
 * @typedef {import("./log-rows.js").Totals} Totals
 * @typedef {import("./streams.js").State} State
 * @typedef {object} Hooks
 * @property {(change: { level?: string | null, logger?: string | null }) => void} onFilter
 * @property {() => void} onFirstError
 * @property {(isWrapped: boolean) => void} onWrap
 * @property {() => void} onFollow
 * @property {() => void} onFind
 * @property {(isAll: boolean) => void} onDownload
 */

const LEVELS = ["DEBUG", "INFO", "WARNING", "ERROR"];
/** @type {Record<State, string>} */
const STATES = {
  connecting: "Connecting…",
  open: "Live",
  lost: "Disconnected, retrying",
  waiting: "Waiting: too many logs are open",
  over: "Ended",
};

export class LogBar {
  #on;
  #chips;
  #loggers;
  #firstError;
  #wrap;
  #follow;
  #some;
  #state = h("span", { class: "log-state small muted", role: "status" });

  /** @param {Hooks} on */
  constructor(on) {
    this.#on = on;
    this.#chips = LEVELS.map((level) => this.#chip(level));
    this.#loggers = h("select", { "aria-label": "Logger" });
    this.#loggers.addEventListener("change", () => on.onFilter({ logger: this.#loggers.value || null }));
    this.#firstError = button("First error", "next", on.onFirstError, { "data-key": "e" });
    this.#wrap = button("Wrap", "wrap", () => this.#toggleWrap(), { "aria-pressed": "true", "data-key": "w" });
    this.#follow = button("Follow", "down-arrow", on.onFollow, { "aria-pressed": "true", "data-key": "f" });
    const keys = { "data-key": "/", "data-key-too": "Ctrl F", "data-key-words": "Search the log" };
    const find = button("Search", "search", on.onFind, { title: "Ctrl+F, or /", ...keys });
    const quiet = { class: "button small quiet" };
    const all = { ...quiet, title: "Download the full log" };
    const some = { ...quiet, title: "Download only the filtered lines" };
    this.#some = button("Download filtered", "download", () => on.onDownload(false), some);
    const acts = [this.#firstError, this.#wrap, this.#follow, find];
    this.element = h(
      "div",
      { class: "log-bar row" },
      h("div", { class: "row", role: "group", "aria-label": "Level" }, this.#chips),
      this.#loggers,
      ...acts,
      button("Download", "download", () => on.onDownload(true), all),
      this.#some,
      this.#state,
    );
  }

  /** @param {string} level */
  #chip(level) {
    const onclick = () => this.#on.onFilter({ level: level === "DEBUG" ? null : level });
    return h("button", { type: "button", class: "chip", "data-level": level, "aria-pressed": "false", onclick });
  }

  #toggleWrap() {
    const isWrapped = this.#wrap.getAttribute("aria-pressed") !== "true";
    this.#wrap.setAttribute("aria-pressed", String(isWrapped));
    this.#on.onWrap(isWrapped);
  }

  /** @param {boolean} isFollowing */
  setFollowing(isFollowing) {
    this.#follow.setAttribute("aria-pressed", String(isFollowing));
  }

  /** @param {State} state */
  tellState(state) {
    this.#state.textContent = STATES[state];
    this.#state.dataset.state = state;
  }

  /** @type {(totals: Totals, filter: Filter) => void} */
  tellCounts({ levels, loggers, lines }, filter) {
    const { level: wanted = "DEBUG", logger = "" } = filter;
    const known = linesFrom(levels, lines);
    for (const [place, level] of LEVELS.entries()) {
      const chip = this.#chips[place];
      // an error with a traceback has many lines
      const words = `${named(level)} ${count(known[level])} ${known[level] === 1 ? "line" : "lines"}`;
      if (chip.textContent !== words) chip.textContent = words;
      if (chip.ariaPressed !== String(level === wanted)) chip.ariaPressed = String(level === wanted);
    }
    this.#firstError.disabled = !known.ERROR;
    this.#some.hidden = !Object.keys(filter).length;
    this.#tellLoggers(loggers, logger);
  }

  /** @type {(loggers: Totals["loggers"], chosen: string) => void} */
  #tellLoggers(loggers, chosen) {
    const select = this.#loggers;
    const names = loggers.map(({ name }) => name).filter(Boolean);
    if (chosen && !names.includes(chosen)) names.unshift(chosen);
    if (select.dataset.names !== names.join("\n")) {
      select.dataset.names = names.join("\n");
      const options = names.map((name) => h("option", { value: name }, shown(name, 60)));
      select.replaceChildren(h("option", { value: "" }, "All loggers"), ...options);
    }
    if (select.value !== chosen) select.value = chosen;
  }
}

/** @type {(level: string) => string} */
function named(level) {
  if (level === "DEBUG") return "All";
  return `${level.slice(0, 1)}${level.slice(1).toLowerCase()} and up`;
}

/**
 * How many lines are of a level or a higher one, for each level that can be chosen.
 *
 * @param {Record<string, number>} levels
 * @param {number} lines all that there are
 * @returns {Record<string, number>}
 */
export function linesFrom(levels, lines) {
  const of = (/** @type {string} */ name) => levels[name] ?? 0;
  const errors = of("ERROR") + of("CRITICAL");
  return { DEBUG: lines, INFO: lines - of("DEBUG"), WARNING: errors + of("WARNING"), ERROR: errors };
}

/** @type {(words: string, symbol: string, act: () => void, attributes?: Attributes) => HTMLButtonElement} */
function button(words, symbol, act, attributes = {}) {
  const all = { type: "button", class: "button small", onclick: act, ...attributes };
  return h("button", all, icon(symbol), h("span", {}, words));
}
