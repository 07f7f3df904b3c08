// Records that a spider has scraped: JSON that is read without losing digits, and the values at their paths.
// An integer beyond 53 bits stays the text that it was, where the browser can do that.

/** @typedef {Record<string, unknown>} Values */

/** @type {(value: unknown) => value is RawJSON} */
export const isRaw = (value) => JSON.isRawJSON?.(value) ?? false;

/**
 * JSON text as values.
 *
 * @template T
 * @param {string} text
 * @returns {T}
 */
export function parse(text) {
  const raw = JSON.rawJSON;
  if (!raw) return JSON.parse(text);
  const whole = JSON.parse(text, (_, value, { source }) =>
    Number.isInteger(value) && !Number.isSafeInteger(value) ? raw(source) : value,
  );
  return /** @type {T} */ (whole);
}

/**
 * What stands at `path` in a record: the field of that name, or that of an object in it (`seller.name`).
 *
 * @param {Values} record
 * @param {string} path
 * @returns {unknown}
 */
export function valueAt(record, path) {
  if (Object.hasOwn(record, path)) return record[path];
  const [outer = "", ...rest] = path.split(".");
  const inner = rest.join(".");
  const object = Object.hasOwn(record, outer) ? record[outer] : null;
  return isObject(object) && inner && Object.hasOwn(object, inner) ? object[inner] : undefined;
}

/** @type {(value: unknown) => value is Values} */
export const isObject = (value) =>
  typeof value === "object" && value !== null && !Array.isArray(value) && !isRaw(value);

/** @type {(value: unknown) => value is Values | unknown[]} */
export const isNested = (value) => Array.isArray(value) || isObject(value);

/**
 * Whether values of this kind stand at the right of their column.
 *
 * @param {unknown} value
 */
export const isNumber = (value) => typeof value === "number" || isRaw(value);
