// Short messages at the edge of the page, which screen readers read, too. Errors stay until they are closed.
import { suspect } from "./connection.js";
import { allWithin, byId, h, icon } from "./dom.js";

const SECONDS = 6;
const KEPT = "toast-after-load";

/**
 * @param {string} words
 * @param {"info" | "bad"} kind
 */
export function toast(words, kind = "info") {
  // an error that occurs again and again is shown once
  const said = allWithin(byId("toasts"), `[data-kind="${kind}"] span`);
  if (kind === "bad" && said.some(({ textContent }) => textContent === words)) return;
  const onclick = () => {
    shown.remove();
  };
  const close = h("button", { type: "button", "aria-label": "Close", onclick }, icon("close"));
  const shown = h("div", { class: "toast", "data-kind": kind }, h("span", {}, words), close);
  byId("toasts").append(shown);
  if (kind !== "bad") setTimeout(() => shown.remove(), SECONDS * 1000);
}

/**
 * Show the message on the next page.
 *
 * @param {string} words
 */
export function toastAfterLoad(words) {
  sessionStorage.setItem(KEPT, words);
}

const kept = sessionStorage.getItem(KEPT);
if (kept) {
  sessionStorage.removeItem(KEPT);
  toast(kept);
}
document.addEventListener("htmx:response:error", (event) => {
  const { response } = event.detail.ctx;
  // a proxy's status while the gateway is away
  if (response.status === 502 || response.status === 504) suspect();
  else if (response.status !== 401)
    toast(`This part could not be loaded (${response.status}). Load the page again.`, "bad");
});
document.addEventListener("htmx:error", suspect);
