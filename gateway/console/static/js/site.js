// The page of a site: what has not ended is cancelled with one button.
import { bulk } from "./bulk.js";
import { above } from "./dom.js";
import { renewPart } from "./parts.js";

document.addEventListener("click", (event) => {
  const { bulk: action, filter } = above(event, "[data-bulk]")?.dataset ?? {};
  if (action && filter) bulk(action, JSON.parse(filter), renew);
});

const renew = () => renewPart("#main");
