// The page of a site: what has not ended is cancelled with one button.
import { bulk } from "./bulk.js";
import { renewPart } from "./parts.js";

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-bulk]");
  if (button) bulk(button.dataset.bulk, JSON.parse(button.dataset.filter), renew);
});

const renew = () => renewPart("#main");
