// Forms that call the JSON API: `<form data-api="POST /jobs/5f0c…/cancel" data-then="reload">`.
//
// Fields become the body by their names: `a.b` is the value `b` of `a`, empty optional fields are left out. `data-type` says what a field
// is: number, boolean, json, lines (a list, one per line), pairs (`name=value` per line, a value is JSON or text), texts
// (the same, all are text), time (of the user's zone). A field with the value of `data-default` (JSON) is left out;
// `data-empty` is the JSON that an empty field is sent as. A form with `data-send="file"`
// sends its one file as it is; with `data-send="form"` it sends a multipart form; with `data-send="query"` its fields are
// the query of the call. `{name}` in the address is the value of the field `name`, which is not sent then.
// `data-then`, separated by `|`: `reload`, `goto:/console/jobs/{job_id}` (of the answer), `goto` (the address in
// `data-target`, as it is: text of others never goes into `data-then`), `refresh:#list` (by htmx:
// the element with this selector takes its new content from this page), `toast:words`, `reset`, `event:name`
// (a bubbling event, whose detail is the answer). `data-confirm="…?"` asks first; `data-yes` is the word of its button.
import { ApiError, api } from "./api.js";
import { confirmed } from "./dialog.js";
import { renewPart } from "./parts.js";
import { h, prose, shown } from "./text.js";
import { toast, toastAfterLoad } from "./toast.js";

const READERS = {
  number: (text) => Number(text),
  boolean: (text) => text === "true",
  json: (text) => JSON.parse(text),
  lines: (text) =>
    text
      .split("\n")
      .map((line) => line.trim())
      .filter(Boolean),
  pairs: (text) => pairs(text, jsonOrText),
  texts: (text) => pairs(text, String),
  time: (text) => new Date(text).toISOString(),
};

function pairs(text, read) {
  const lines = READERS.lines(text).map((line) => line.match(/^([^=]+)=(.*)$/));
  return Object.assign(empty(), Object.fromEntries(lines.map(([, name, value]) => [name.trim(), read(value)])));
}

function jsonOrText(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

const NOT = { json: "JSON", pairs: "name=value in each line", texts: "name=value in each line" };

/** The fields of a form as the body of a call. Throws an error with `field` for a field that cannot be read. */
export function bodyOf(form) {
  const body = empty();
  for (const field of form.elements) {
    if (
      !field.name ||
      field.matches(":disabled") ||
      field.type === "file" ||
      (field.type === "radio" && !field.checked)
    )
      continue;
    const value = valueIn(field);
    if (value !== undefined && !isDefault(field, value)) put(body, field.name, value);
  }
  return body;
}

function valueIn(field) {
  if (field.type === "checkbox")
    return field.dataset.type === "boolean" ? field.checked : field.checked ? field.value : undefined;
  if (field.multiple)
    return [...field.selectedOptions].map(({ value }) => (field.dataset.type === "json" ? JSON.parse(value) : value));
  const text = field.value;
  if (text.trim() === "") return field.dataset.empty && JSON.parse(field.dataset.empty);
  try {
    return (READERS[field.dataset.type] ?? String)(text);
  } catch {
    throw Object.assign(new Error(`is not ${NOT[field.dataset.type] ?? `a ${field.dataset.type}`}`), {
      field: field.name,
    });
  }
}

const isDefault = ({ dataset }, value) =>
  dataset.default && JSON.stringify(value) === JSON.stringify(JSON.parse(dataset.default));

/** Spiders choose names of fields: an object that is made from names inherits nothing, and so none of them is special. */
const empty = () => Object.create(null);

/** What stands behind the first dot is one name: a parameter may be called `a.b`. */
function put(body, field, value) {
  const [, first, name] = field.match(/^([^.]*)\.?(.*)$/s);
  if (first === "__proto__" || name === "__proto__")
    throw Object.assign(new Error("cannot have this name"), { field });
  if (name) body[first] ??= empty();
  const values = name ? body[first] : body;
  const last = name || first;
  values[last] = Object.hasOwn(values, last) && !Array.isArray(value) ? [values[last], value].flat() : value;
}

const own = (values, name) => (values != null && Object.hasOwn(values, name) ? values[name] : undefined);

/** `text` with each `{name}` replaced by what `values` has, as a part of an address. */
export function filled(text, values) {
  return text.replace(/\{([\w.]+)\}/g, (_, path) => encodeURIComponent(path.split(".").reduce(own, values) ?? ""));
}

/** Call the API as the form says. Resolves to its answer, or throws `ApiError`. */
export function send(form) {
  const values = bodyOf(form);
  const call = filled(form.dataset.api, values);
  for (const [, name] of form.dataset.api.matchAll(/\{(\w+)\}/g)) delete values[name];
  const how = form.dataset.send;
  if (how === "file") return api(call, { body: form.querySelector("input[type=file]").files[0], query: values });
  if (how === "form") return api(call, { body: multipart(form) });
  if (how === "query") return api(call, { query: values });
  return api(call, call.startsWith("DELETE") || !hasFields(form) ? {} : { body: values });
}

/** A file that was not chosen is left out: it would be sent as an empty one. */
function multipart(form) {
  const body = new FormData(form);
  for (const { name, files } of form.elements) if (files && !files.length) body.delete(name);
  return body;
}

const hasFields = (form) => [...form.elements].some((field) => field.name);

async function submit(form, submitter) {
  if (form.dataset.busy) return;
  const { confirm, yes } = form.dataset;
  const danger = form.dataset.api.startsWith("DELETE") || submitter?.classList.contains("danger");
  if (confirm && !(await confirmed(confirm, { yes: yes ?? submitter?.textContent.trim(), danger }))) return;
  clearProblems(form);
  setBusy(form, true);
  try {
    const answer = await send(form);
    for (const step of (form.dataset.then ?? "reload").split("|")) follow(form, step.trim(), answer ?? {});
  } catch (error) {
    tell(form, error);
  } finally {
    setBusy(form, false);
  }
}

function setBusy(form, busy) {
  if (busy) form.dataset.busy = "true";
  else delete form.dataset.busy;
  for (const button of form.querySelectorAll("button")) button.disabled = busy;
}

function follow(form, step, answer) {
  const [, name, what] = step.match(/^(\w+):?(.*)$/s);
  const steps = {
    reload: () => location.reload(),
    goto: () => goTo(what ? filled(what, answer) : form.dataset.target),
    refresh: () => renewPart(what),
    toast: () => (/reload|goto/.test(form.dataset.then) ? toastAfterLoad(what) : toast(what)),
    reset: () => form.reset(),
    event: () => form.dispatchEvent(new CustomEvent(what, { bubbles: true, detail: answer })),
  };
  steps[name]();
}

/** Lead on to a page of ours, and to no other. */
function goTo(address) {
  const target = new URL(address, location.origin);
  if (target.origin !== location.origin) throw new Error("This address leads elsewhere.");
  location.assign(target);
}

/** Say an error beside the field that it names, otherwise in the form's own alert, otherwise as a toast. */
export function tell(form, error) {
  if (!(error instanceof ApiError) && !error.field) console.warn(error);
  const problems = error.detail?.problems ?? (error.field ? [{ field: error.field, message: error.message }] : []);
  const placed = mark(form, problems);
  form.querySelector('[aria-invalid="true"]')?.focus();
  if (placed.length && placed.length === problems.length) return;
  const words = shown(
    error instanceof TypeError ? "The gateway does not answer. Is it running?" : error.message,
    2000,
  );
  const alert = form.querySelector(':scope [role="alert"]');
  if (!alert) {
    toast(words, "bad");
    return;
  }
  alert.replaceChildren(...prose(words, 2000));
  alert.hidden = false;
}

/** Say problems beside the fields that they name. Returns those that have a field. */
export const mark = (form, problems) => problems.filter((problem) => tellField(form, problem));

function tellField(form, { field, message }) {
  const named = [...form.elements].filter(
    (one) => one.name && (one.name === field || field?.startsWith(`${one.name}.`)),
  );
  // `params.a` is the matter of the field of that name, and else of `params`
  const input = named.sort((one, other) => other.name.length - one.name.length)[0];
  if (!input) return false;
  input.closest("details")?.setAttribute("open", "");
  const id = `${input.id || input.name}-error`;
  const words = h("p", { class: "error", id, "data-problem": true }, prose(message, 2000));
  (input.closest(".field") ?? input.parentElement).append(words);
  input.setAttribute("aria-invalid", "true");
  input.setAttribute("aria-describedby", [input.getAttribute("aria-describedby"), id].filter(Boolean).join(" "));
  return true;
}

export function clearProblems(form) {
  for (const words of form.querySelectorAll("[data-problem]")) {
    for (const input of form.querySelectorAll(`[aria-describedby~="${CSS.escape(words.id)}"]`)) {
      const left = input
        .getAttribute("aria-describedby")
        .split(" ")
        .filter((id) => id !== words.id);
      if (left.length) input.setAttribute("aria-describedby", left.join(" "));
      else input.removeAttribute("aria-describedby");
      input.removeAttribute("aria-invalid");
    }
    words.remove();
  }
  const alert = form.querySelector('[role="alert"]');
  if (alert) alert.hidden = true;
}

document.addEventListener("submit", (event) => {
  if (!event.target.matches("form[data-api]")) return;
  event.preventDefault();
  submit(event.target, event.submitter);
});
// what is wrong has to be seen, or the browser refuses to send it without a word
document.addEventListener("invalid", (event) => event.target.closest("details")?.setAttribute("open", ""), true);
