// Elements: made, and found with the class that they are of.
import { shown } from "./text.js";

/**
 * An element: `h("a", { href: "/" }, "Home")`. Strings become text, never markup.
 *
 * @template {keyof HTMLElementTagNameMap} Name
 * @param {Name} name
 * @param {Attributes} attributes
 * @param {(Child | Child[])[]} children
 * @returns {HTMLElementTagNameMap[Name]}
 */
export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(key.slice(2), /** @type {EventListener} */ (value));
    else if (value === true) element.setAttribute(key, "");
    else if (value != null && value !== false) element.setAttribute(key, String(value));
  }
  element.append(...children.flat().filter((child) => child != null && child !== false));
  return element;
}

/**
 * `<svg>` with a symbol of `icons.svg`.
 *
 * @param {string} name
 */
export function icon(name) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(space, "use");
  use.setAttribute("href", symbol(name));
  svg.append(use);
  return svg;
}

/**
 * The address of a symbol of `icons.svg`.
 *
 * @param {string} name
 */
export const symbol = (name) => `${new URL("../icons.svg", import.meta.url).pathname}#${name}`;

/**
 * A message as children for `h`, with `names` between backticks as code.
 *
 * @param {string} text
 * @returns {(string | Node)[]}
 */
export function prose(text, limit = 600) {
  const parts = shown(text, limit).split("`");
  return parts.length % 2 ? parts.map((part, place) => (place % 2 ? h("code", {}, part) : part)) : [parts.join("`")];
}

/**
 * The element with this id. Throws an error where the page has none of this class.
 *
 * @template {HTMLElement} [Kind=HTMLElement]
 * @param {string} id
 * @param {new () => Kind} kind
 * @returns {Kind}
 */
export function byId(id, kind = /** @type {new () => Kind} */ (HTMLElement), root = document) {
  return checked(root.getElementById(id), kind, `#${id}`);
}

/**
 * The first element below `root` that a selector matches. Throws an error where there is none of this class.
 *
 * @template {Element} [Kind=HTMLElement]
 * @param {ParentNode} root
 * @param {string} selector
 * @param {new () => Kind} kind
 * @returns {Kind}
 */
export function within(root, selector, kind = /** @type {new () => Kind} */ (/** @type {unknown} */ (HTMLElement))) {
  return checked(root.querySelector(selector), kind, selector);
}

/**
 * All elements below `root` that a selector matches and that are of this class.
 *
 * @template {Element} [Kind=HTMLElement]
 * @param {ParentNode} root
 * @param {string} selector
 * @param {new () => Kind} kind
 * @returns {Kind[]}
 */
export function allWithin(
  root,
  selector,
  kind = /** @type {new () => Kind} */ (/** @type {unknown} */ (HTMLElement)),
) {
  return [...root.querySelectorAll(selector)].filter(
    /** @type {(found: Element) => found is Kind} */ ((found) => found instanceof kind),
  );
}

/**
 * The element that a selector matches, at or above where an event has happened; null if there is none.
 *
 * @param {Event} event
 * @param {string} selector
 */
export function above({ target }, selector) {
  const found = target instanceof Element ? target.closest(selector) : null;
  return found instanceof HTMLElement ? found : null;
}

/**
 * @template {Element} Kind
 * @param {Element | null} found
 * @param {new () => Kind} kind
 * @param {string} name
 */
function checked(found, kind, name) {
  if (found instanceof kind) return found;
  throw new TypeError(`The page has no ${kind.name} ${name}.`);
}

/**
 * The controls of a form that have a value, in their order.
 *
 * @param {HTMLFormElement} form
 * @returns {Field[]}
 */
export const fieldsOf = (form) => [...form.elements].filter(isField);

/**
 * The control of this name; undefined if the form has none, or several.
 *
 * @param {HTMLFormElement} form
 * @param {string} name
 */
export function fieldOf(form, name) {
  const found = form.elements.namedItem(name);
  return isField(found) ? found : undefined;
}

/** @type {(found: unknown) => found is Field} */
const isField = (found) =>
  found instanceof HTMLInputElement || found instanceof HTMLSelectElement || found instanceof HTMLTextAreaElement;
