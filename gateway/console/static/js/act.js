// Forms that call the JSON API: `<form data-api="POST /jobs/5f0c…/cancel" data-then="reload">`. What its fields say is
// the body (`fields.js`).
//
// A form with `data-send="file"` sends its one file as it is; with `data-send="form"` it sends a multipart form; with
// `data-send="query"` its fields are the query of the call. `{name}` in the address is the value of the field `name`,
// which is not sent then.
// `data-then`, separated by `|`: `reload`, `goto:/console/jobs/{job_id}` (of the answer), `goto` (the address in
// `data-target`, as it is: text of others never goes into `data-then`), `refresh:#list` (by htmx:
// the element with this selector takes its new content from this page), `toast:words`, `reset`, `event:name`
// (a bubbling event, whose detail is the answer). `data-confirm="…?"` asks first; `data-yes` is the word of its button.
import { ApiError, api, messageOf } from "./api.js";
import { confirmed } from "./dialog.js";
import { above, fieldsOf, prose, within } from "./dom.js";
import { bodyOf, FieldError, filled } from "./fields.js";
import { renewPart } from "./parts.js";
import { alertOf, clearProblems, mark, problemsOf } from "./problems.js";
import { shown } from "./text.js";
import { toast, toastAfterLoad } from "./toast.js";

/** @typedef {import("./fields.js").Values} Values */

/**
 * Call the API as the form says. Resolves to its answer, or throws `ApiError`.
 *
 * @param {HTMLFormElement} form
 * @returns {Promise<Values | undefined>}
 */
export function send(form) {
  const { api: pattern = "", send: how } = form.dataset;
  const values = bodyOf(form);
  const call = filled(pattern, values);
  for (const [, name] of pattern.matchAll(/\{(\w+)\}/g)) delete values[name];
  const query = /** @type {import("./api.js").Query} */ (values);
  if (how === "file")
    return api(call, { body: within(form, "input[type=file]", HTMLInputElement).files?.[0], query });
  if (how === "form") return api(call, { body: multipart(form) });
  if (how === "query") return api(call, { query });
  return api(call, call.startsWith("DELETE") || !hasFields(form) ? {} : { body: values });
}

/**
 * A file that was not chosen is left out: it would be sent as an empty one.
 *
 * @param {HTMLFormElement} form
 */
function multipart(form) {
  const body = new FormData(form);
  for (const field of fieldsOf(form)) {
    if (field instanceof HTMLInputElement && field.files?.length === 0) body.delete(field.name);
  }
  return body;
}

/** @type {(form: HTMLFormElement) => boolean} */
const hasFields = (form) => fieldsOf(form).some((field) => field.name);

/** @type {(form: HTMLFormElement, submitter: HTMLElement | null) => Promise<void>} */
async function submit(form, submitter) {
  if (form.dataset.busy) return;
  const { api: call = "", confirm, yes, then: steps = "reload" } = form.dataset;
  const danger = call.startsWith("DELETE") || submitter?.classList.contains("danger");
  if (confirm && !(await confirmed(confirm, { yes: yes ?? submitter?.textContent.trim(), danger }))) return;
  clearProblems(form);
  setBusy(form, true);
  try {
    const answer = (await send(form)) ?? {};
    for (const step of steps.split("|")) follow(form, step.trim(), answer);
  } catch (error) {
    tell(form, error);
  } finally {
    setBusy(form, false);
  }
}

/** @type {(form: HTMLFormElement, busy: boolean) => void} */
function setBusy(form, busy) {
  if (busy) form.dataset.busy = "true";
  else delete form.dataset.busy;
  for (const button of form.querySelectorAll("button")) button.disabled = busy;
}

/** @type {(form: HTMLFormElement, step: string, answer: Values) => void} */
function follow(form, step, answer) {
  const [name = "", ...rest] = step.split(":");
  const what = rest.join(":");
  /** @type {Record<string, () => unknown>} */
  const steps = {
    reload: () => location.reload(),
    goto: () => goTo(what ? filled(what, answer) : (form.dataset.target ?? "")),
    refresh: () => renewPart(what),
    toast: () => (/reload|goto/.test(form.dataset.then ?? "") ? toastAfterLoad(what) : toast(what)),
    reset: () => form.reset(),
    event: () => form.dispatchEvent(new CustomEvent(what, { bubbles: true, detail: answer })),
  };
  steps[name]?.();
}

/**
 * Go to this page, if it is a page of the gateway.
 *
 * @param {string} address
 */
function goTo(address) {
  const target = new URL(address, location.origin);
  if (target.origin !== location.origin) throw new Error("This address leads elsewhere.");
  location.assign(target);
}

/**
 * Say an error beside the field that it names, otherwise in the form's own alert, otherwise as a toast.
 *
 * @param {HTMLFormElement} form
 * @param {unknown} error
 */
export function tell(form, error) {
  if (!(error instanceof ApiError || error instanceof FieldError)) console.warn(error);
  const problems = problemsOf(error).filter(({ field }) => field);
  const placed = mark(form, problems);
  if (placed.length) within(form, '[aria-invalid="true"]').focus();
  if (placed.length && placed.length === problemsOf(error).length) return;
  const words = shown(messageOf(error), 2000);
  const alert = alertOf(form);
  if (!alert) {
    toast(words, "bad");
    return;
  }
  alert.replaceChildren(...prose(words, 2000));
  alert.hidden = false;
}

document.addEventListener("submit", (event) => {
  const form = above(event, "form[data-api]");
  if (!(form instanceof HTMLFormElement)) return;
  event.preventDefault();
  submit(form, event.submitter);
});
// show the invalid field: if it is hidden, the browser refuses to send the form without a message
document.addEventListener("invalid", (event) => above(event, "details")?.setAttribute("open", ""), true);
