// The page of a site: one button cancels all jobs that have not ended.
import { bulk } from "./bulk.js";
import { above } from "./dom.js";
import { renewPart } from "./parts.js";

document.addEventListener("click", (event) => {
  const { bulk: action, filter } = above(event, "[data-bulk]")?.dataset ?? {};
  if (action && filter) bulk(action, JSON.parse(filter), renew);
});

const renew = () => renewPart("#main");
