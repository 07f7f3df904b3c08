// One act on all jobs that a filter names: first the exact number, then piece by piece, until it is done or stopped.
import { api } from "./api.js";
import { count, h, shown } from "./text.js";

// what is done, its past, and what it means for a job
const ACTS = {
  cancel: ["Cancel", "cancelled", "Waiting jobs end at once, running ones are asked to stop."],
  retry: ["Retry", "run again", "Each ended job runs again as a new job. One that was retried this way before is left out."],
  delete: ["Delete", "deleted", "Ended jobs are removed with their items, files and logs. This cannot be undone."],
  requeue: ["Requeue", "requeued", "Each runs again as a new job, and leaves this list."],
  dismiss: ["Dismiss", "dismissed", "They leave this list. The jobs, their items and logs stay."],
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
    this.go = h("button", { class: `button ${action === "delete" ? "danger" : "primary"}`, type: "button", hidden: true, onclick: () => this.run() });
    this.close = h("button", { class: "button", type: "button", onclick: () => this.dialog.close() }, "Close");
    const title = h("h2", { id: "bulk-title" }, `${this.verb} all that match`);
    const buttons = h("div", { class: "buttons" }, this.close, this.go);
    this.dialog = h("dialog", { "aria-labelledby": "bulk-title" }, h("div", { class: "bulk" }, title, this.words, h("p", { class: "muted" }, this.means), this.bar, this.list, buttons));
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
      const { matched } = await this.call({});
      this.offer(matched, "");
    } catch (error) {
      this.words.textContent = shown(error.message, 500);
    }
  }

  offer(matched, before) {
    this.matched = matched;
    this.go.hidden = !matched;
    this.go.textContent = `${this.verb} ${jobs(matched)}`;
    this.words.textContent = before + (matched ? `${jobs(matched)} ${matched === 1 ? "matches" : "match"}${said(this.filter)}.` : `No job that matches can be ${this.past}.`);
    if (matched) this.go.focus();
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
      const report = await this.call({ expect: this.matched, ...(this.after && { after: this.after }) });
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
    if (error.code === "count_changed") {
      this.offer(error.detail.matched, "Their number has changed. ");
      return;
    }
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
      this.list.append(h("li", {}, h("a", { href: `/console/jobs/${id}` }, id.slice(0, 8)), ` ${shown(message, 300)}`));
    }
    this.list.hidden = !this.list.children.length;
  }
}

const jobs = (number) => `${count(number)} job${number === 1 ? "" : "s"}`;

/** The filter in words. */
function said(filter) {
  const words = Object.entries(filter).map(([name, value]) => `${name.replaceAll("_", " ")} ${[value].flat().join(" or ")}`);
  return words.length ? `: ${shown(words.join(", "), 400)}` : ": all there are";
}
