// One act on all jobs that a filter names: first the exact number, then piece by piece, until it is done or stopped.
import { api } from "./api.js";
import { count, h, shown } from "./text.js";

// what is done, its past, and what it means for a job
const ACTS = {
  cancel: ["Cancel", "cancelled", "Waiting jobs end at once, running ones are asked to stop."],
  retry: [
    "Retry",
    "run again",
    "Each ended job runs again as a new job. One that was retried this way before is left out.",
  ],
  delete: ["Delete", "deleted", "Ended jobs are removed with their items, files and logs. This cannot be undone."],
  requeue: ["Requeue", "requeued", "Each runs again as a new job, and leaves this list."],
  dismiss: ["Dismiss", "dismissed", "They leave this list. The jobs, their items and logs stay."],
};

const LIVE = ["scheduled", "pending", "running", "paused"];
const FINAL = ["finished", "partial", "error", "cancelled"];
const NOT_ENDED = [LIVE, "has not ended", "have not ended"];
const ONLY_JUST = ["has only just ended", "have only just ended"];
// which jobs an act leaves out: by their status; and the others
const LEFT_OUT = {
  cancel: [
    [FINAL, "has ended", "have ended"],
    ["is being cancelled already", "are being cancelled already"],
  ],
  retry: [NOT_ENDED, ONLY_JUST],
  delete: [NOT_ENDED, ONLY_JUST],
};

/** Ask, and act. `onDone` is called when something was done, while the dialog still says what. */
export function bulk(action, filter, onDone) {
  new Bulk(action, filter, onDone).open();
}

class Bulk {
  constructor(action, filter, onDone) {
    Object.assign(this, { action, filter, onDone, done: 0, refused: 0, refusals: [], after: null, stopped: false });
    [this.verb, this.past, this.means] = ACTS[action];
    this.words = h("p", { role: "status" }, "Counting…");
    this.bar = h("progress", { hidden: true, "aria-label": "Done" });
    this.list = h("ul", { hidden: true, "aria-label": "Refused jobs" });
    this.go = h("button", {
      class: `button ${action === "delete" ? "danger" : "primary"}`,
      type: "button",
      hidden: true,
      onclick: () => this.run(),
    });
    this.close = h("button", { class: "button", type: "button", onclick: () => this.dialog.close() }, "Close");
    const title = h("h2", { id: "bulk-title" }, `${this.verb} all that match`);
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
      this.words.textContent = shown(error.message, 500);
    }
  }

  async offer(matched) {
    const left = await this.leftOut(matched);
    this.matched = matched;
    this.go.hidden = !matched;
    this.go.textContent = `${this.verb} ${jobs(matched)}`;
    this.words.textContent = this.offered(matched, left);
    if (matched) this.go.focus();
  }

  offered(matched, { total, why }) {
    if (!matched) return `No job that matches can be ${this.past}${why ? `: ${why}` : ""}.`;
    if (!why)
      return `${jobs(matched)} ${matched === 1 ? "matches" : "match"}: ${said(this.filter) || "all there are"}.`;
    const some = total ? `${count(matched)} of these ${jobs(total)}` : jobs(matched);
    return `${some} can be ${this.past}: ${why}.${said(this.filter) && ` Filter: ${said(this.filter)}.`}`;
  }

  /** How many match, where that is counted exactly, and why some of them are left out, if any. */
  async leftOut(matched) {
    if (!LEFT_OUT[this.action]) return {};
    const [[statuses, ...byStatus], others] = LEFT_OUT[this.action];
    const wanted = this.filter.status?.length ? statuses.filter((one) => this.filter.status.includes(one)) : statuses;
    const all = await counted(this.filter);
    if (!all.is_exact) return { why: `those are left out that ${byStatus[1]}` };
    const unfit = wanted.length ? (await counted({ ...this.filter, status: wanted })).count : 0;
    const parts = [
      [unfit, byStatus],
      [all.count - matched - unfit, others],
    ].filter(([number]) => number > 0);
    return {
      total: all.count,
      why: parts.map(([number, words]) => `${count(number)} ${words[number === 1 ? 0 : 1]}`).join(", "),
    };
  }

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

  fail(error) {
    this.words.textContent = `${this.sum()}. It stopped: ${shown(error.message, 500)}`;
    this.go.hidden = false;
    this.go.textContent = "Go on";
  }

  sum() {
    const of = this.after ? ` of ${count(this.matched)}` : "";
    return `${count(this.done)}${of} ${this.past}${this.refused ? `, ${count(this.refused)} refused` : ""}`;
  }

  say(end) {
    this.words.textContent = this.sum() + end;
  }

  note(refusals) {
    for (const { job_id: id, message } of refusals.slice(0, 20 - this.list.children.length)) {
      this.list.append(
        h("li", {}, h("a", { href: `/console/jobs/${id}` }, id.slice(0, 8)), ` ${shown(message, 300)}`),
      );
    }
    this.list.hidden = !this.list.children.length;
  }
}

const jobs = (number) => `${count(number)} job${number === 1 ? "" : "s"}`;

const counted = (filter) => api("GET /jobs/count", { query: filter });

/** The filter in words; empty if all jobs match. */
function said(filter) {
  const given = Object.entries(filter).filter(([, value]) => value != null);
  return shown(
    given.map(([name, value]) => `${name.replaceAll("_", " ")} ${[value].flat().join(" or ")}`).join(", "),
    400,
  );
}
