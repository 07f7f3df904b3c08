// One action on all jobs that a filter matches, or that are ticked: first shows the exact number, then acts piece by
// piece, until all is done or the user stops it.
import { api, messageOf } from "./api.js";
import { h } from "./dom.js";
import { PauseTick } from "./pausing.js";
import { count, shown } from "./text.js";

// the action, its past tense, and its effect on a job
/** @type {Record<string, [verb: string, past: string, meaning: string]>} */
const ACTS = {
  cancel: ["Cancel", "cancelled", "Waiting jobs end immediately. Running jobs are asked to stop."],
  retry: ["Retry", "retried", "Each ended job is rerun as a new job. Jobs that were already retried are skipped."],
  delete: ["Delete", "deleted", "Ended jobs are removed with their items, files and logs. This cannot be undone."],
  requeue: ["Requeue", "requeued", "Each job is rerun as a new job, and leaves this list."],
  dismiss: ["Dismiss", "dismissed", "Takes the jobs off this list. The jobs, their items and logs are kept."],
};

const LIVE = ["scheduled", "pending", "running", "paused"];
const FINAL = ["finished", "partial", "error", "cancelled"];
/** @type {[string[], string, string]} */
const NOT_ENDED = [LIVE, "has not ended", "have not ended"];
/** @type {[string, string]} */
const ONLY_JUST = ["has just ended", "have just ended"];
// words for the jobs that an action leaves out: first those that a status explains, then the others
/**
 * @typedef {[one: string, several: string]} Words
 *
 * @type {Record<string, [byStatus: [statuses: string[], ...Words], others: Words]>}
 */
const LEFT_OUT = {
  cancel: [
    [FINAL, "has ended", "have ended"],
    ["is already being cancelled", "are already being cancelled"],
  ],
  retry: [NOT_ENDED, ONLY_JUST],
  delete: [NOT_ENDED, ONLY_JUST],
};

/** @typedef {import("./api.js").Query & { status?: string[] }} Filter */

/**
 * Ask the user, and act. `onDone` is called when something was done, while the dialog still shows the result.
 * `schedules` are the ids of the schedules that can be paused when the jobs are cancelled.
 *
 * @type {(action: string, filter: Filter, onDone: () => void, schedules?: string[]) => void}
 */
export function bulk(action, filter, onDone, schedules = []) {
  new Bulk(action, filter, onDone, action === "cancel" ? schedules : []).open();
}

class Bulk {
  done = 0;
  refused = 0;
  matched = 0;
  /** @type {string | null} */
  after = null;
  paused = "";
  asOf = "";
  stopped = false;
  words = h("p", { role: "status" }, "Counting…");
  bar = h("progress", { hidden: true, "aria-label": "Progress" });
  list = h("ul", { hidden: true, "aria-label": "Refused jobs" });
  close = h("button", { class: "button", type: "button", onclick: () => this.end() }, "Close");

  /**
   * @param {string} action
   * @param {Filter} filter
   * @param {() => void} onDone
   * @param {string[]} schedules
   */
  constructor(action, filter, onDone, schedules) {
    // a user who stops all crawls of a host does not want them to begin again
    this.pause = new PauseTick(schedules, given({ ...filter, user_id: undefined }).join() === "host");
    this.action = action;
    this.filter = filter;
    this.onDone = onDone;
    const [verb, past, means] = ACTS[action] ?? [action, action, ""];
    this.verb = verb;
    this.past = past;
    this.means = means;
    const kind = action === "delete" ? "danger" : "primary";
    const attributes = { class: `button ${kind}`, type: "button", hidden: true, onclick: () => this.run() };
    this.go = h("button", attributes);
    this.which = filter.job_id ? "selected" : "matching";
    const title = h("h2", { id: "bulk-title" }, `${this.verb} all ${this.which} jobs`);
    const buttons = h("div", { class: "buttons" }, this.close, this.go);
    this.dialog = h(
      "dialog",
      { "aria-labelledby": "bulk-title" },
      h(
        "div",
        { class: "bulk" },
        title,
        this.words,
        h("p", { class: "muted" }, this.means),
        this.pause.element,
        this.bar,
        this.list,
        buttons,
      ),
    );
    this.dialog.addEventListener("close", () => this.end());
  }

  open() {
    document.body.append(this.dialog);
    this.dialog.showModal();
    this.count();
  }

  end() {
    this.stopped = true;
    this.dialog.remove();
  }

  async count() {
    try {
      const { matched, as_of: asOf } = await this.call({});
      this.asOf = asOf;
      await this.offer(matched);
    } catch (error) {
      this.words.textContent = shown(messageOf(error), 500);
    }
  }

  /** @type {(matched: number) => Promise<void>} */
  async offer(matched) {
    const left = await this.leftOut(matched);
    this.matched = matched;
    this.go.hidden = !matched;
    this.go.textContent = `${this.verb} ${jobs(matched)}`;
    this.words.textContent = this.offered(matched, left);
    if (matched) this.go.focus();
  }

  /** @type {(matched: number, left: { total?: number, why?: string }) => string} */
  offered(matched, { total, why }) {
    if (!matched) return `None of the ${this.which} jobs can be ${this.past}${why ? `: ${why}` : ""}.`;
    if (!why && this.filter.job_id) return `${jobs(matched)} selected.`;
    if (!why) return `${jobs(matched)} ${matched === 1 ? "matches" : "match"}: ${said(this.filter) || "no filter"}.`;
    const some = total ? `${count(matched)} of ${jobs(total)}` : jobs(matched);
    return `${some} can be ${this.past}: ${why}.${said(this.filter) && ` Filter: ${said(this.filter)}.`}`;
  }

  /**
   * How many jobs match (if they are counted exactly), and why some of them are left out (if any are).
   *
   * @type {(matched: number) => Promise<{ total?: number, why?: string }>}
   */
  async leftOut(matched) {
    const left = LEFT_OUT[this.action];
    if (!left) return {};
    const [[statuses, ...byStatus], others] = left;
    const asked = this.filter.status ?? [];
    const wanted = asked.length ? statuses.filter((one) => asked.includes(one)) : statuses;
    const all = await counted(this.filter);
    if (!all.is_exact) return { why: `those that ${byStatus[1]} are skipped` };
    const unfit = wanted.length ? (await counted({ ...this.filter, status: wanted })).count : 0;
    /** @type {[number, Words][]} */
    const groups = [
      [unfit, byStatus],
      [all.count - matched - unfit, others],
    ];
    const parts = groups.filter(([number]) => number > 0);
    return {
      total: all.count,
      why: parts.map(([number, words]) => `${count(number)} ${words[number === 1 ? 0 : 1]}`).join(", "),
    };
  }

  /** @type {(more: object) => Promise<BulkReport>} */
  call(more) {
    return api("POST /jobs/bulk", { body: { filter: this.filter, action: this.action, ...more } });
  }

  async run() {
    this.stopped = false;
    this.go.hidden = true;
    this.bar.hidden = false;
    this.bar.max = this.matched;
    this.close.textContent = "Stop";
    this.close.focus();
    try {
      await this.work();
    } catch (error) {
      this.fail(error);
    }
    this.bar.hidden = true;
    this.close.textContent = "Close";
    if (this.done) this.onDone();
  }

  async work() {
    // first, or they start jobs while these are cancelled
    this.paused = await this.pause.run();
    do {
      this.say("…");
      const report = await this.call({
        expect: this.matched,
        as_of: this.asOf,
        ...(this.after && { after: this.after }),
      });
      this.done += report.done;
      this.refused += report.refused;
      this.note(report.refusals);
      this.after = report.next;
      this.bar.value = this.done + this.refused;
      if (report.stopped) throw new Error(report.stopped);
    } while (this.after && !this.stopped);
    this.say(".");
  }

  /** @type {(error: unknown) => void} */
  fail(error) {
    this.words.textContent = `${this.sum()}. Stopped: ${shown(messageOf(error), 500)}`;
    this.go.hidden = false;
    this.go.textContent = "Continue";
  }

  sum() {
    const of = this.after ? ` of ${count(this.matched)}` : "";
    const refused = this.refused ? `, ${count(this.refused)} refused` : "";
    return `${count(this.done)}${of} ${this.past}${refused}${this.paused && `, ${this.paused}`}`;
  }

  /** @type {(end: string) => void} */
  say(end) {
    this.words.textContent = this.sum() + end;
  }

  /** @type {(refusals: BulkReport["refusals"]) => void} */
  note(refusals) {
    for (const { job_id: id, message } of refusals.slice(0, 20 - this.list.children.length)) {
      this.list.append(
        h("li", {}, h("a", { href: `/console/jobs/${id}` }, id.slice(0, 8)), ` ${shown(message, 300)}`),
      );
    }
    this.list.hidden = !this.list.children.length;
  }
}

/** @type {(number: number) => string} */
const jobs = (number) => `${count(number)} job${number === 1 ? "" : "s"}`;

/** @type {(filter: Filter) => Promise<{ count: number, is_exact: boolean }>} */
const counted = (filter) => api("GET /jobs/count", { query: filter });

// words for fields of a filter, where they are clearer than the names
/** @type {Record<string, string>} */
const WORDS = {
  q: "text",
  since: "created after",
  until: "created before",
  started_since: "started after",
  started_until: "started before",
  finished_since: "ended after",
  finished_until: "ended before",
  schedule_id: "schedule",
  user_id: "user",
};

/** The names of the fields that the filter has. @type {(filter: Filter) => string[]} */
const given = (filter) => Object.keys(filter).filter((name) => filter[name] != null);

/**
 * The filter in words; empty if all jobs match.
 *
 * @type {(filter: Filter) => string}
 */
function said(filter) {
  return shown(
    given(filter)
      .filter((name) => name !== "job_id")
      .map((name) => `${WORDS[name] ?? name.replaceAll("_", " ")} ${[filter[name]].flat().join(" or ")}`)
      .join(", "),
    400,
  );
}
