// Shows what is wrong with a form, beside the fields in question.
import { ApiError } from "./api.js";
import { fieldsOf, h, prose } from "./dom.js";
import { FieldError } from "./fields.js";

/**
 * An error of a call or of the form itself, as problems of fields; an error that is about no field is a problem without one.
 *
 * @param {unknown} error
 * @returns {Problem[]}
 */
export function problemsOf(error) {
  if (error instanceof ApiError && error.detail?.problems) return error.detail.problems;
  const field = error instanceof ApiError || error instanceof FieldError ? error.field : undefined;
  return [{ field, message: error instanceof Error ? error.message : String(error) }];
}

/**
 * The problem in words that name the field.
 *
 * @param {Problem} problem
 */
export const inWords = ({ field, message }) =>
  field && !message.startsWith(field) ? `${field}: ${message}` : message;

/**
 * Say problems beside the fields that they name. Returns those that have a field.
 *
 * @param {HTMLFormElement} form
 * @param {Problem[]} problems
 */
export const mark = (form, problems) => problems.filter((problem) => markField(form, problem));

/**
 * Problems of fields that the user has visited; the other fields are not filled in yet.
 *
 * @param {Problem[]} problems
 * @param {Set<string>} touched names of fields
 */
export const ofTouched = (problems, touched) =>
  problems.filter(
    ({ field }) => field && [...touched].some((name) => field === name || field.startsWith(`${name}.`)),
  );

/**
 * @param {HTMLFormElement} form
 * @param {Problem} problem
 */
function markField(form, { field, message }) {
  const named = fieldsOf(form).filter((one) => one.name && (one.name === field || field?.startsWith(`${one.name}.`)));
  // a problem of `params.a` belongs to the field of this name, or else to the field `params`
  const input = named.sort((one, other) => other.name.length - one.name.length)[0];
  if (!input) return false;
  input.closest("details")?.setAttribute("open", "");
  const id = `${input.id || input.name}-error`;
  const words = h("p", { class: "error", id, "data-problem": true }, prose(message, 2000));
  (input.closest(".field") ?? input.parentElement)?.append(words);
  input.setAttribute("aria-invalid", "true");
  input.setAttribute("aria-describedby", [input.getAttribute("aria-describedby"), id].filter(Boolean).join(" "));
  return true;
}

/** @param {HTMLFormElement} form */
export function clearProblems(form) {
  for (const words of form.querySelectorAll("[data-problem]")) {
    for (const input of form.querySelectorAll(`[aria-describedby~="${CSS.escape(words.id)}"]`)) {
      const left = (input.getAttribute("aria-describedby") ?? "").split(" ").filter((id) => id !== words.id);
      if (left.length) input.setAttribute("aria-describedby", left.join(" "));
      else input.removeAttribute("aria-describedby");
      input.removeAttribute("aria-invalid");
    }
    words.remove();
  }
  const alert = alertOf(form);
  if (alert) alert.hidden = true;
}

/**
 * The place for problems of the form as a whole.
 *
 * @param {HTMLFormElement} form
 * @returns {HTMLElement | null}
 */
export const alertOf = (form) => form.querySelector('[role="alert"]');
