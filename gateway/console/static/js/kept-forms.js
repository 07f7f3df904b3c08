// Filled-in forms survive a session that ends meanwhile: their content is kept in this tab until its user has signed
// in again, and nobody else gets it.
import { allWithin, fieldsOf } from "./dom.js";
import { toast } from "./toast.js";

const KEPT = "kept-forms";

/** @typedef {{ viewer: string | undefined, page: string, forms: [place: number, value: string, checked: boolean][][] }} Kept */

const forms = () => allWithin(document, "form", HTMLFormElement);
const page = () => location.pathname + location.search;

/** @type {(field: Field) => boolean} */
function isFilledIn(field) {
  if (field.type === "password" || field.type === "file" || field.type === "hidden") return false;
  if (field instanceof HTMLSelectElement)
    return [...field.options].some((option) => option.selected !== option.defaultSelected);
  const isTicked = field instanceof HTMLInputElement && field.checked !== field.defaultChecked;
  return isTicked || field.value !== field.defaultValue;
}

/** @type {(field: Field) => boolean} */
const isTicked = (field) => field instanceof HTMLInputElement && field.checked;

/** Keep the fields whose value differs from the one in the page as it was sent. */
export function keepForms() {
  /** @type {Kept["forms"]} */
  const filled = forms().map((form) =>
    fieldsOf(form).flatMap((field, place) => (isFilledIn(field) ? [[place, field.value, isTicked(field)]] : [])),
  );
  if (!filled.some((fields) => fields.length)) return;
  /** @type {Kept} */
  const kept = { viewer: document.body.dataset.viewer, page: page(), forms: filled };
  sessionStorage.setItem(KEPT, JSON.stringify(kept));
}

/** Fill in what was kept of this page, for the same user. */
function restore() {
  const text = sessionStorage.getItem(KEPT);
  if (!text || location.pathname === "/console/sign-in") return;
  sessionStorage.removeItem(KEPT);
  /** @type {Kept} */
  const kept = JSON.parse(text);
  if (kept.viewer !== document.body.dataset.viewer || kept.page !== page()) return;
  forms().forEach((form, number) => {
    const fields = fieldsOf(form);
    for (const [place, value, checked] of kept.forms[number] ?? []) {
      const field = fields[place];
      if (!field) continue;
      field.value = value;
      if (field instanceof HTMLInputElement) field.checked = checked;
      for (const name of ["input", "change"]) field.dispatchEvent(new Event(name, { bubbles: true }));
    }
  });
  toast("What you had filled in is still here.");
}

// after the modules of the page itself, which listen to its fields
addEventListener("load", restore);
