// The fields for the times of runs: shows those of the chosen kind, and writes the cron expression of a day and a time.
import { allWithin, h, within } from "./dom.js";
import { intervalOf, isAgain, recognised } from "./intervals.js";
import { citiesOf, zoneNames, zoneOf } from "./zones.js";

export class WhenFields extends HTMLElement {
  connectedCallback() {
    fillZones(within(this, "#zones"));
    const { interval, timezone } = this.#fields;
    timezone.value ||= Intl.DateTimeFormat().resolvedOptions().timeZone ?? "UTC";
    for (const field of allWithin(this, "[data-time]", HTMLInputElement))
      field.value = inputValue(new Date(field.dataset.time ?? ""));
    this.#choose(recognised(interval.value));
    this.addEventListener("input", () => this.#sync());
    timezone.addEventListener("change", () => takeCity(timezone));
    this.#sync();
  }

  get #fields() {
    return {
      when: within(this, "#when", HTMLSelectElement),
      every: within(this, "#when-every", HTMLInputElement),
      time: within(this, "#when-time", HTMLInputElement),
      day: within(this, "#when-day", HTMLSelectElement),
      interval: within(this, "#interval", HTMLInputElement),
      timezone: within(this, "#timezone", HTMLInputElement),
      moment: within(this, "#schedule_at", HTMLInputElement),
    };
  }

  /** `now`, `once`, `daily`, `weekdays`, `weekly`, `every` or `cron`. */
  get kind() {
    return this.#fields.when.value;
  }

  get isAgain() {
    return isAgain(this.kind);
  }

  /** The field that is still to be filled in, as a problem; undefined if there is none. */
  get missing() {
    if (!this.isAgain || this.#fields.interval.value.trim()) return undefined;
    return {
      field: "interval",
      message: "Enter an interval: a cron expression such as `0 9 * * *` (every day at 9:00).",
    };
  }

  /** @param {Partial<import("./intervals.js").Chosen>} chosen */
  #choose({ kind, every, time, day }) {
    const fields = this.#fields;
    if (kind) fields.when.value = kind;
    if (every) fields.every.value = every;
    if (time) fields.time.value = time;
    if (day) fields.day.value = day;
  }

  #sync() {
    const { kind } = this;
    for (const part of allWithin(this, "[data-when]")) {
      const isUsed = (part.dataset.when ?? "").split(" ").includes(kind);
      part.hidden = !isUsed;
      for (const field of part.querySelectorAll("input")) field.disabled = !isUsed;
      for (const field of part.querySelectorAll("select")) field.disabled = !isUsed;
    }
    for (const words of allWithin(this, "[data-when-words]")) {
      words.hidden = !(words.dataset.whenWords ?? "").split(" ").includes(kind);
    }
    const { every, time, day, interval, moment } = this.#fields;
    moment.required = kind === "once";
    interval.readOnly = kind !== "cron";
    interval.value = intervalOf({ kind, every: every.value, time: time.value, day: day.value }) ?? interval.value;
  }
}

/**
 * A time as a field of the user's zone takes it.
 *
 * @param {Date} date
 */
export const inputValue = (date) =>
  new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);

/** @param {HTMLElement} list */
function fillZones(list) {
  list.replaceChildren(...zoneNames().map((name) => h("option", { value: name, label: citiesOf(name).join(", ") })));
}

/**
 * Replace the name of a city by its zone.
 *
 * @param {HTMLInputElement} field
 */
function takeCity(field) {
  const zone = zoneOf(field.value);
  if (!zone || zone === field.value) return;
  field.value = zone;
  // the preview listens to it
  field.dispatchEvent(new Event("input", { bubbles: true }));
}

customElements.define("when-fields", WhenFields);
