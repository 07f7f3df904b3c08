// Renews a part of the page with the same part of the page at an address.
import { fieldOf } from "./dom.js";

/** The renewal under way. The next one waits for it, because htmx drops a request that overlaps another, and ignores
 * an answer if its part was replaced in the meantime. */
let last = Promise.resolve();

/**
 * Replace the element at the selector `part` by that of the page at `address()`, which is called when the request
 * begins. With `push`, this becomes the address of the page in the browser. The element at the selector `too` is
 * replaced with it, if both pages have it.
 *
 * @param {string} part
 * @param {() => string} address
 * @param {{ push?: boolean, too?: string }} options
 */
export function renewPart(part, address = () => location.href, { push = false, too } = {}) {
  const load = () => {
    const from = address();
    return window.htmx.ajax("GET", from, {
      target: part,
      select: part,
      swap: "outerHTML",
      ...(push && { push: from }),
      ...(too && document.querySelector(too) && { selectOOB: too }),
    });
  };
  last = last.then(load, load);
}

/**
 * Replace the elements with these ids by those of another page, which was fetched before. For pages that renew several
 * parts with one request, or check its answer first.
 *
 * @param {Document} page
 * @param {string[]} ids
 */
export function takeParts(page, ids) {
  for (const id of ids) {
    const [old, now] = [document.getElementById(id), page.getElementById(id)];
    if (old && now) old.replaceWith(document.adoptNode(now));
  }
}

/**
 * Write the value of a field that was replaced into the new field of the same name and type.
 *
 * @param {HTMLFormElement} form
 * @param {Field} old
 */
export function keepValue(form, old) {
  const field = fieldOf(form, old.name);
  if (field?.type !== old.type) return;
  field.value = old.value;
  if (field instanceof HTMLInputElement && old instanceof HTMLInputElement) field.checked = old.checked;
}
