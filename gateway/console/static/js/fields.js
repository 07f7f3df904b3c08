// Makes the body of a call from the fields of a form.
//
// Fields become the body by their names: `a.b` is the value `b` of `a`, empty optional fields are left out. `data-type` says what a field
// is: number, boolean, json, lines (a list, one per line), pairs (`name=value` per line, a value is JSON or text), texts
// (the same, all are text), time (of the user's zone). A field with the value of `data-default` (JSON) is left out;
// `data-empty` is the JSON that an empty field is sent as. If a field with `data-without` is empty, the part of the body
// that it names is null, even if its other fields have values.
import { fieldsOf } from "./dom.js";

/** @typedef {Record<string, unknown>} Values */

/** @type {Record<string, (text: string) => unknown>} */
const READERS = {
  number: (text) => Number(text),
  boolean: (text) => text === "true",
  json: (text) => JSON.parse(text),
  lines,
  pairs: (text) => pairs(text, jsonOrText),
  texts: (text) => pairs(text, String),
  time: (text) => new Date(text).toISOString(),
};

/** @type {Record<string, string>} */
const NOT = { json: "JSON", pairs: "name=value on each line", texts: "name=value on each line" };

/** A field that cannot be read. */
export class FieldError extends Error {
  /**
   * @param {string} field
   * @param {string} message
   */
  constructor(field, message) {
    super(message);
    this.field = field;
  }
}

/** @param {string} text */
function lines(text) {
  const all = text.split("\n").map((line) => line.trim());
  return all.filter(Boolean);
}

/** @type {(text: string, value: (text: string) => unknown) => Values} */
function pairs(text, value) {
  const values = empty();
  for (const line of lines(text)) {
    const end = line.indexOf("=");
    if (end < 1) throw new SyntaxError("no name");
    values[line.slice(0, end).trim()] = value(line.slice(end + 1));
  }
  return values;
}

/** @param {string} text */
function jsonOrText(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/**
 * The value of a text in a field of this kind. Throws an error where it cannot be read.
 *
 * @param {string} text
 * @param {string} [kind] as in `data-type`
 */
export const read = (text, kind) => (READERS[kind ?? ""] ?? String)(text);

/**
 * The fields of a form as the body of a call. Throws `FieldError` for a field that cannot be read.
 *
 * @param {HTMLFormElement} form
 */
export function bodyOf(form) {
  const body = empty();
  for (const field of fieldsOf(form)) {
    if (!field.name || field.matches(":disabled") || field.type === "file" || !isChosen(field)) continue;
    const value = valueIn(field);
    if (value !== undefined && !isDefault(field, value)) put(body, field.name, value);
  }
  for (const { value, dataset } of fieldsOf(form)) if (dataset.without && !value.trim()) body[dataset.without] = null;
  return body;
}

/** @param {Field} field */
const isChosen = (field) => field.type !== "radio" || isChecked(field);

/** @param {Field} field */
const isChecked = (field) => field instanceof HTMLInputElement && field.checked;

/**
 * @param {Field} field
 * @returns {unknown}
 */
function valueIn(field) {
  const { type, empty: otherwise } = field.dataset;
  if (field.type === "checkbox") {
    if (type === "boolean") return isChecked(field);
    return isChecked(field) ? field.value : undefined;
  }
  if (field instanceof HTMLSelectElement && field.multiple)
    return [...field.selectedOptions].map(({ value }) => (type === "json" ? JSON.parse(value) : value));
  if (field.value.trim() === "") return otherwise ? JSON.parse(otherwise) : undefined;
  try {
    return read(field.value, type);
  } catch {
    throw new FieldError(field.name, `is not ${NOT[type ?? ""] ?? `a ${type}`}`);
  }
}

/** @type {(field: Field, value: unknown) => boolean} */
const isDefault = ({ dataset }, value) =>
  Boolean(dataset.default) && JSON.stringify(value) === JSON.stringify(JSON.parse(dataset.default ?? ""));

/**
 * Spiders choose names of fields: an object that is made from names inherits nothing, and so none of them is special.
 *
 * @returns {Values}
 */
export const empty = () => Object.create(null);

/**
 * The text behind the first dot is one name, even with dots: a parameter may be called `a.b`.
 *
 * @param {Values} body
 * @param {string} field
 * @param {unknown} value
 */
export function put(body, field, value) {
  const dot = field.indexOf(".");
  const [first, name] = dot < 0 ? [field, ""] : [field.slice(0, dot), field.slice(dot + 1)];
  if (first === "__proto__" || name === "__proto__") throw new FieldError(field, "cannot have this name");
  if (name) body[first] ??= empty();
  const values = name ? /** @type {Values} */ (body[first]) : body;
  const last = name || first;
  values[last] = Object.hasOwn(values, last) && !Array.isArray(value) ? [values[last], value].flat() : value;
}

/** @type {(values: unknown, name: string) => unknown} */
const own = (values, name) =>
  values != null && Object.hasOwn(/** @type {Values} */ (values), name)
    ? /** @type {Values} */ (values)[name]
    : undefined;

/**
 * `text` with each `{name}` replaced by what `values` has, as a part of an address.
 *
 * @param {string} text
 * @param {Values} values
 */
export function filled(text, values) {
  return text.replace(/\{([\w.]+)\}/g, (_, path) => {
    const value = path.split(".").reduce(own, values);
    return encodeURIComponent(String(value ?? ""));
  });
}
