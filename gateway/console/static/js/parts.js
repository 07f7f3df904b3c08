// A part of the page is read anew: what the page at an address has there takes its place.
import { fieldOf } from "./dom.js";

/** What is under way. One waits for another: htmx drops what is asked for meanwhile, and shows no answer that was for a
 * part which has been replaced since. */
let last = Promise.resolve();

/**
 * Show what the page at `address()`, which is asked for when it begins, has at the selector `part`; with `push` the
 * address is the page's from then on.
 *
 * @param {string} part
 * @param {() => string} address
 * @param {{ push?: boolean }} options
 */
export function renewPart(part, address = () => location.href, { push = false } = {}) {
  const load = () => {
    const from = address();
    return window.htmx.ajax("GET", from, {
      target: part,
      select: part,
      swap: "outerHTML",
      ...(push && { push: from }),
    });
  };
  last = last.then(load, load);
}

/**
 * Have what another page, which was read already, has under these ids in the place of what is here.
 * For pages that are read once for several parts, and are looked at before.
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
 * Write into the field of the same name and kind what somebody has typed into one that is gone.
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
