// Pauses schedules, alone or as a part of another action.
import { api } from "./api.js";
import { h } from "./dom.js";
import { count } from "./text.js";

/** @type {(ids: string[]) => string} */
export const schedules = (ids) => `${count(ids.length)} schedule${ids.length === 1 ? "" : "s"}`;

/**
 * Pause the schedules, one after the other. Those that were paused before a failure stay paused.
 *
 * @param {string[]} ids
 */
export async function pauseSchedules(ids) {
  for (const id of ids) await api(`POST /schedules/${id}/pause`);
}

/** A checkbox that pauses schedules beside an action on their jobs. */
export class PauseTick {
  #box = h("input", { type: "checkbox", id: "pause-too" });

  /**
   * @param {string[]} ids of the schedules; the box is only shown if there are any
   * @param {boolean} ticked
   */
  constructor(ids, ticked) {
    this.ids = ids;
    this.#box.checked = ticked && ids.length > 0;
    const words = `Also pause the ${ids.length === 1 ? "schedule" : schedules(ids)} that would start such jobs again`;
    this.element = h(
      "div",
      { class: "field tick", hidden: !ids.length },
      this.#box,
      h("label", { for: "pause-too" }, words),
    );
  }

  /**
   * Pause them if the box is ticked. Resolves to what was done, in words; empty if nothing was.
   *
   * @returns {Promise<string>}
   */
  async run() {
    if (!this.#box.checked) return "";
    this.#box.disabled = true;
    await pauseSchedules(this.ids);
    return `${schedules(this.ids)} paused`;
  }
}
