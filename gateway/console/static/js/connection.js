// Whether the gateway answers. While it does not, one banner says so, clocks stop, and it is asked until it does.
import { byId, h } from "./dom.js";

/** Milliseconds between two questions, and until one that has no answer is given up. */
const PAUSE = 2000;
const PATIENCE = 5000;

/** @type {HTMLElement | undefined} */
let banner;
/** @type {Promise<void> | undefined} */
let asking;

/** Whether the gateway is known not to answer: what a page shows is then as it was, and not as it is. */
export const isAway = () => banner !== undefined;

/** Something did not get through: find out whether the gateway is there. */
export function suspect() {
  asking ??= askUntilThere().finally(() => (asking = undefined));
}

async function askUntilThere() {
  while (!(await answers())) {
    if (!banner) {
      banner = h("p", { class: "banner", id: "disconnected", role: "alert" }, "Disconnected, retrying…");
      byId("main").prepend(banner);
    }
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
  }
  if (!banner) return;
  banner.remove();
  banner = undefined;
  document.body.dispatchEvent(new CustomEvent("tick"));
}

async function answers() {
  try {
    return (await fetch("/health/live", { signal: AbortSignal.timeout(PATIENCE) })).ok;
  } catch {
    return false;
  }
}
