// The form of a rule: it shows the fields that its measure takes, and the alerts that the rule would have raised in the past.
import { tell } from "./act.js";
import { api } from "./api.js";
import { allWithin, byId, fieldOf, h } from "./dom.js";
import { bodyOf } from "./fields.js";
import { clearProblems } from "./problems.js";
import { shown } from "./text.js";
import { time } from "./times.js";

/** A form outside of the page, for pages on which no rule can be changed. */
const form = /** @type {HTMLFormElement} */ (document.querySelector("form#rule") ?? h("form"));
const DAYS = 7;
/** Fields of a change of a rule that a preview does not accept. */
const NOT_ASKED = ["paused", "silenced_until"];
const COMPARED = ["items", "pages", "errors", "error_share", "duration"];

/** @type {(name: string) => string[]} */
const words = (name) => (form.dataset[name] ?? "").split(" ");

/** Show the fields of this measure. Hidden fields are not sent. */
function sync() {
  const measure = fieldOf(form, "when.measure")?.value ?? "";
  const [isRun, isYes] = [words("runs").includes(measure), words("yes").includes(measure)];
  show("[data-bound]", !isYes);
  show("[data-usual]", COMPARED.includes(measure));
  show("[data-row]", isRun);
  show("[data-lasting]", !isRun && measure !== "idle");
  show("[data-grouped]", !["waiting", "queue", "held", "not_started", "node_down", "disk_full"].includes(measure));
}

/** @type {(selector: string, shows: boolean) => void} */
function show(selector, shows) {
  for (const part of allWithin(form, selector, HTMLFieldSetElement)) {
    part.hidden = !shows;
    part.disabled = !shows;
  }
}

async function preview() {
  clearProblems(form);
  const body = bodyOf(form);
  for (const name of NOT_ASKED) delete body[name];
  if (body.remind_seconds === null) delete body.remind_seconds;
  if (form.dataset.user) body.user_id = form.dataset.user;
  if ("all" in form.dataset) body.all_users = true;
  try {
    const seen = /** @type {RulePreview} */ (
      await api("POST /alerts/rules/preview", { body, query: { days: DAYS } })
    );
    byId("rule-preview").replaceChildren(...said(seen));
  } catch (error) {
    byId("rule-preview").replaceChildren();
    tell(form, error);
  }
}

/** @type {(seen: RulePreview) => HTMLElement[]} */
function said({ runs, since, count, incidents }) {
  const often = count === 1 ? "once" : `${count} times`;
  const verdict = incidents.length ? `Would have fired ${often}` : "Would not have fired";
  const line = h("p", { class: "verdict" }, h("span", {}, `${verdict} in ${runs} runs since `, time(since)));
  const rows = incidents
    .slice(0, 20)
    .map((one) =>
      h(
        "li",
        {},
        time(one.since),
        ` ${shown(one.group, 80)}: ${shown(one.message, 200)}`,
        one.until ? "" : " (still so)",
      ),
    );
  return rows.length ? [line, h("ul", { class: "list" }, rows)] : [line];
}

if (form.isConnected) {
  form.addEventListener("change", sync);
  form.querySelector("[data-preview]")?.addEventListener("click", preview);
  sync();
}
