// Short words at the edge of the page, which a screen reader says too. Errors stay until they are closed.
import { h, icon } from "./text.js";

const SECONDS = 6;
const KEPT = "toast-after-load";

/** `kind` is "info" or "bad". */
export function toast(words, kind = "info") {
  const close = h("button", { type: "button", "aria-label": "Close", onclick: () => shown.remove() }, icon("close"));
  const shown = h("div", { class: "toast", "data-kind": kind }, h("span", {}, words), close);
  document.getElementById("toasts").append(shown);
  if (kind !== "bad") setTimeout(() => shown.remove(), SECONDS * 1000);
}

/** The same on the page that comes next. */
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
  if (response.status !== 401)
    toast(`This part could not be loaded (${response.status}). Load the page again.`, "bad");
});
document.addEventListener("htmx:error", () => toast("The gateway does not answer. Is it running?", "bad"));
