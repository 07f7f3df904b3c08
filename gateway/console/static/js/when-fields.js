// When something runs: shows the fields of what is chosen, and writes the cron expression of a day and a time.
import { h } from "./text.js";

const AGAIN = new Set(["daily", "weekdays", "weekly", "every", "cron"]);

class WhenFields extends HTMLElement {
  connectedCallback() {
    this.fields = Object.fromEntries([...this.querySelectorAll("input, select")].map((field) => [field.id, field]));
    fillZones(this.querySelector("#zones"));
    const { timezone, interval } = this.fields;
    timezone.value ||= Intl.DateTimeFormat().resolvedOptions().timeZone ?? "UTC";
    for (const field of this.querySelectorAll("[data-time]")) field.value = inputValue(new Date(field.dataset.time));
    if (interval.value) this.#recognise(interval.value);
    this.addEventListener("input", () => this.#sync());
    this.#sync();
  }

  /** `now`, `once`, `daily`, `weekdays`, `weekly`, `every` or `cron`. */
  get kind() {
    return this.fields.when.value;
  }

  get isAgain() {
    return AGAIN.has(this.kind);
  }

  /** What is still to be filled in, as a fault of its field; undefined if nothing is. */
  get missing() {
    if (!this.isAgain || this.fields.interval.value.trim()) return undefined;
    return {
      field: "interval",
      message: "Fill in the interval: a cron expression such as `0 9 * * *`, which is every day at 9:00.",
    };
  }

  /** Choose what an interval says, if it is one of those that a form can write. */
  #recognise(text) {
    const every = text.match(/^every\s+(.+)$/i);
    const cron = text.match(/^(\d{1,2}) (\d{1,2}) \* \* (\*|[0-6]|MON-FRI|1-5)$/i);
    if (every) this.fields["when-every"].value = every[1];
    if (every) this.fields.when.value = "every";
    if (!cron) return;
    const [, minute, hour, days] = cron;
    this.fields["when-time"].value = `${hour.padStart(2, "0")}:${minute.padStart(2, "0")}`;
    if (/^[0-6]$/.test(days)) this.fields["when-day"].value = days;
    this.fields.when.value = days === "*" ? "daily" : /^[0-6]$/.test(days) ? "weekly" : "weekdays";
  }

  #sync() {
    for (const part of this.querySelectorAll("[data-when]")) {
      const isUsed = part.dataset.when.split(" ").includes(this.kind);
      part.hidden = !isUsed;
      for (const field of part.querySelectorAll("input, select")) field.disabled = !isUsed;
    }
    for (const words of this.querySelectorAll("[data-when-words]")) {
      words.hidden = !words.dataset.whenWords.split(" ").includes(this.kind);
    }
    this.fields.schedule_at.required = this.kind === "once";
    const { interval } = this.fields;
    interval.readOnly = this.kind !== "cron";
    interval.value = this.#interval() ?? interval.value;
  }

  #interval() {
    const [hour, minute] = (this.fields["when-time"].value || "00:00").split(":").map(Number);
    const days = { daily: "*", weekdays: "MON-FRI", weekly: this.fields["when-day"].value }[this.kind];
    if (days) return `${minute} ${hour} * * ${days}`;
    return this.kind === "every" ? `every ${this.fields["when-every"].value.trim()}` : undefined;
  }
}

/** A time as a field of the user's zone takes it. */
const inputValue = (date) => new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);

function fillZones(list) {
  const names = ["UTC", ...(Intl.supportedValuesOf?.("timeZone") ?? [])];
  list.replaceChildren(...names.map((name) => h("option", { value: name })));
}

customElements.define("when-fields", WhenFields);
