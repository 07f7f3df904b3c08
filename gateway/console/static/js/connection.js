// Whether the gateway answers. While it does not, a banner says so, clocks stop, and this tab asks it again and again.
import { byId, h } from "./dom.js";

/** Milliseconds between two tries, and until a try without an answer is given up. */
const PAUSE = 2000;
const PATIENCE = 5000;

/** @type {HTMLElement | undefined} */
let banner;
/** @type {Promise<void> | undefined} */
let asking;

/** Whether the gateway is known not to answer. The page then shows an earlier state. */
export const isAway = () => banner !== undefined;

/** Find out whether the gateway is there, because a request has failed. */
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
