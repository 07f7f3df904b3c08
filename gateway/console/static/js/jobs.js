// Lists of jobs: their filters, how many there are, what is new, and acts on all that match.
import { api } from "./api.js";
import { bulk } from "./bulk.js";
import { followRows, renew } from "./live.js";
import { renewPart } from "./parts.js";
import "./saved-views.js";
import "./start-scatter.js";
import { count } from "./text.js";

const TYPING_MS = 400;
const NEWS_MS = 2000;
const PAGE = 50;

const form = document.getElementById("filters");
const results = () => document.getElementById("results");
const filter = () => JSON.parse(results().dataset.filter);
const isDeadLetters = location.pathname.endsWith("dead-letters");

// --- filters: the address has them, and only the list changes

function wanted() {
  const pairs = [...new FormData(form)].filter(([, value]) => value.trim());
  return `${location.pathname}?${new URLSearchParams(pairs)}`;
}

/** Show the list that the form asks for now. */
function ask() {
  renewPart("#results", wanted, { push: true });
}

let typing;
form.addEventListener("input", (event) => {
  clearTimeout(typing);
  typing = setTimeout(ask, event.target.matches("input:not([type=checkbox])") ? TYPING_MS : 0);
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(typing);
  ask();
});

/** `2027-06-01T09:00:01` in the user's zone, as its input takes it. */
const local = (iso) => {
  const date = new Date(iso);
  return new Date(date - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
};

for (const input of form.querySelectorAll("[data-time]")) {
  const hidden = form.elements[input.dataset.time];
  if (hidden.value && !Number.isNaN(Date.parse(hidden.value))) input.value = local(hidden.value);
  input.addEventListener("input", () => (hidden.value = input.value ? new Date(input.value).toISOString() : ""));
}

document.addEventListener("scatter:brush", ({ detail: { since, until } }) => {
  for (const [name, date] of [
    ["started_since", since],
    ["started_until", until],
  ]) {
    form.elements[name].value = date.toISOString();
    form.querySelector(`[data-time="${name}"]`).value = local(date);
  }
  form.querySelector("details").open = true;
  ask();
});

// --- how many

async function sayCount() {
  const place = results().querySelector("[data-count]");
  if (!place || place.textContent.trim()) return;
  const noun = place.dataset.count || "job";
  const found = await api("GET /jobs/count", { query: filter() });
  const number = `${count(found.count)}${found.is_exact ? "" : "+"}`;
  place.textContent = `${number} ${noun}${found.count === 1 ? "" : "s"}`;
}

// --- what is new: rows stay where they are until the user asks

let asking;
let missed = false;

function lookForNews() {
  const button = document.getElementById("news");
  if (asking || !button || new URLSearchParams(location.search).has("after")) return;
  asking = setTimeout(async () => {
    asking = undefined;
    missed = document.hidden;
    if (missed) return;
    const query = { ...filter(), sort: new URLSearchParams(location.search).get("sort"), limit: PAGE };
    const { jobs } = await api("GET /jobs", { query });
    jobs.forEach(renew);
    const fresh = jobs.filter((job) => !results().querySelector(`[data-job="${job.job_id}"]`)).length;
    button.hidden = !fresh;
    if (fresh) button.textContent = `Show ${fresh === PAGE ? `${PAGE} or more` : fresh} new`;
  }, NEWS_MS);
}

document.addEventListener("visibilitychange", () => !document.hidden && missed && lookForNews());

document.addEventListener("click", (event) => {
  const { id, dataset } = event.target.closest("button") ?? { dataset: {} };
  if (id === "news") refresh();
  if (dataset.bulk) bulk(dataset.bulk, filter(), refresh);
});

function refresh() {
  renewPart("#results", () => {
    const address = new URL(location.href);
    address.searchParams.delete("after");
    return address.pathname + address.search;
  });
}

document.addEventListener("htmx:after:swap", sayCount);
sayCount();
if (!isDeadLetters) {
  // the filter by user may change, the user as whom an admin looks not
  followRows({
    user: document.body.dataset.user,
    onStranger: lookForNews,
    onChange: lookForNews,
    onGap: lookForNews,
  });
}
