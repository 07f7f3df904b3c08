// The page of a site: what still waits or runs is cancelled with one button.
import { bulk } from "./bulk.js";

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-bulk]");
  if (button) bulk(button.dataset.bulk, JSON.parse(button.dataset.filter), renew);
});

const renew = () => htmx.ajax("GET", location.href, { target: "#main", select: "#main", swap: "outerHTML" });
