// A part of the page is read anew: what the page at an address has there takes its place.

/** What is under way. One waits for another: htmx drops what is asked for meanwhile, and shows no answer that was for a
 * part which has been replaced since. */
let last = Promise.resolve();

/**
 * Show what the page at `address()`, which is asked for when it begins, has at the selector `part`; with `push` the
 * address is the page's from then on.
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
