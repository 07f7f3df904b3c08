// Lists of jobs: their filters, how many jobs there are, new jobs, and actions on all jobs that match.
import { api, messageOf } from "./api.js";
import { bulk } from "./bulk.js";
import { confirmed } from "./dialog.js";
import { above, allWithin, byId, within } from "./dom.js";
import { followRows, renew } from "./live-rows.js";
import { renewPart } from "./parts.js";
import { pauseSchedules, schedules } from "./pausing.js";
import { ticked } from "./row-ticks.js";
import { inputValue } from "./when-fields.js";
import "./saved-views.js";
import "./start-scatter.js";
import { count, shown } from "./text.js";
import { toast } from "./toast.js";

const TYPING_MS = 400;
const NEWS_MS = 2000;
const PAGE = 50;

const form = byId("filters", HTMLFormElement);
const results = () => byId("results");
/** @type {() => import("./bulk.js").Filter} */
const filter = () => JSON.parse(results().dataset.filter ?? "{}");
/** The ticked jobs; without any, all that match. @type {() => import("./bulk.js").Filter} */
const chosen = () => {
  const { user_id, dead } = filter();
  const ids = ticked();
  return ids.length ? { user_id, dead, job_id: ids } : filter();
};
/** The columns of the list if nobody chooses. */
const usual = allWithin(form, "[data-usual]")[0]?.dataset.usual;
const isDeadLetters = location.pathname.endsWith("dead-letters");

// --- filters: the address has them, and only the list changes

function wanted() {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (String(value).trim()) query.append(name, String(value));
  if (query.getAll("columns").join(" ") === usual) query.delete("columns");
  return `${location.pathname}?${query}`;
}

/** Show the list that the form asks for now. */
function ask() {
  renewPart("#results", wanted, { push: true, too: "#presets" });
}

/** @type {number | undefined} */
let typing;
form.addEventListener("input", (event) => {
  clearTimeout(typing);
  typing = setTimeout(ask, above(event, "input:not([type=checkbox])") ? TYPING_MS : 0);
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(typing);
  ask();
});

for (const input of allWithin(form, "[data-time]", HTMLInputElement)) {
  const hidden = within(form, `[name="${input.dataset.time}"]`, HTMLInputElement);
  if (!Number.isNaN(Date.parse(hidden.value))) input.value = inputValue(new Date(hidden.value));
  input.addEventListener("input", () => {
    hidden.value = input.value ? new Date(input.value).toISOString() : "";
  });
}

document.addEventListener("scatter:brush", ({ detail: { since, until } }) => {
  const times = { started_since: since, started_until: until };
  for (const [name, date] of Object.entries(times)) {
    within(form, `[name="${name}"]`, HTMLInputElement).value = date.toISOString();
    within(form, `[data-time="${name}"]`, HTMLInputElement).value = inputValue(date);
  }
  within(form, "details", HTMLDetailsElement).open = true;
  ask();
});

// --- how many

async function sayCount() {
  const place = allWithin(results(), "[data-count]")[0];
  if (!place || place.textContent?.trim()) return;
  const noun = place.dataset.count || "job";
  /** @type {{ count: number, is_exact: boolean }} */
  const found = await api("GET /jobs/count", { query: filter() });
  const number = `${count(found.count)}${found.is_exact ? "" : "+"}`;
  place.textContent = `${number} ${noun}${found.count === 1 ? "" : "s"}`;
}

// --- new jobs: rows stay where they are until the user asks

/** @type {number | undefined} */
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
    /** @type {{ jobs: Job[] }} */
    const { jobs } = await api("GET /jobs", { query });
    jobs.forEach(renew);
    const fresh = jobs.filter((job) => !results().querySelector(`[data-job="${job.job_id}"]`)).length;
    button.hidden = !fresh;
    if (fresh) button.textContent = `Show ${fresh === PAGE ? `${PAGE} or more` : fresh} new`;
  }, NEWS_MS);
}

document.addEventListener("visibilitychange", () => !document.hidden && missed && lookForNews());

document.addEventListener("click", (event) => {
  const button = above(event, "button");
  if (button?.id === "news") refresh();
  if (button instanceof HTMLButtonElement && button.dataset.pauseSchedules) pause(button);
  if (button?.dataset.bulk) bulk(button.dataset.bulk, chosen(), refresh, offered());
});

/** The active schedules that crawl the host of the filter, if they can be paused. */
const offered = () => allWithin(results(), "[data-pause-schedules]")[0]?.dataset.pauseSchedules?.split(" ") ?? [];

/** Pause the schedules that crawl the host. @type {(button: HTMLButtonElement) => Promise<void>} */
async function pause(button) {
  const ids = offered();
  const words = schedules(ids);
  if (!(await confirmed(`Pause ${words}? No run begins until they are resumed.`, { yes: "Pause" }))) return;
  button.disabled = true;
  try {
    await pauseSchedules(ids);
    toast(`${words} paused`);
  } catch (error) {
    toast(shown(messageOf(error), 500), "bad");
  }
  refresh();
}

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
  // not the filter's user, which may change, but the user as whom an admin looks, which stays the same
  followRows({
    user: document.body.dataset.user,
    onStranger: lookForNews,
    onChange: lookForNews,
    onGap: lookForNews,
  });
}
