// The page of a job while it lives: counters and curves from the events that all tabs share; where it stands, its time
// line and its buttons from the page itself whenever its status changes.
import { address, api, pageAt } from "./api.js";
import { isAway } from "./connection.js";
import { countsOf, pictures } from "./curves.js";
import { allWithin, byId, h, within } from "./dom.js";
import { LineChart } from "./line-chart.js";
import { exact } from "./moments.js";
import { takeParts } from "./parts.js";
import { follow } from "./streams.js";
import { count, duration } from "./text.js";
import { refresh } from "./times.js";

/** Events add points to the curves; after this many milliseconds the curves and the estimate are read again, with what events have missed. */
const READ_MS = 15_000;
/** The least seconds between two points. */
const APART = 0.9;
/** Parts of the page that show the job's state. */
const PARTS = ["job-status", "job-actions", "job-state", "job-life", "job-wait", "tab-said", "tab-nothing"];
/** @type {Record<string, string>} */
const ENDS = {
  queue: "the queue is empty",
  max_pages: "max pages is reached",
  max_items: "max items is reached",
};

const page = byId("job-page");
const id = page.dataset.job ?? "";
/** @type {import("./curves.js").Counts[]} */
let curves = [];

async function read() {
  /** @type {{ attempts: Curve[], estimate: Estimate | null }} */
  const { attempts, estimate } = await api(`GET /jobs/${id}/progress`);
  curves = attempts.map(countsOf);
  draw();
  tell(estimate);
}

function draw() {
  const card = byId("job-curves");
  card.hidden = !curves.some(({ at }) => at.length > 1);
  if (card.hidden) return;
  for (const [name, picture] of Object.entries(pictures(curves, !("live" in page.dataset))))
    within(page, `line-chart#${name}`, LineChart).show(picture);
}

/** @type {(estimate: Estimate | null) => void} */
function tell(estimate) {
  const place = document.getElementById("job-estimate");
  if (!place) return;
  place.hidden = !estimate;
  if (!estimate) return;
  const left = duration((Date.parse(estimate.at) - Date.now()) / 1000);
  const begins = estimate.reckoned_by === "timeout" ? "No estimate yet. Time limit in" : "Should end in about";
  const open = `${count(estimate.queued)} ${estimate.queued === 1 ? "request" : "requests"} open`;
  const pace = `${open}; ${count(estimate.done_per_s)} done and ${count(estimate.found_per_s)} found per second.`;
  const ends = ENDS[estimate.reckoned_by];
  const moment = h("time", { datetime: estimate.at, "data-exact": true }, exact(new Date(estimate.at)));
  place.replaceChildren(
    `${begins} ${left} (`,
    moment,
    ends ? `), when ${ends}. ` : "). ",
    h("span", { class: "muted" }, pace),
  );
}

// --- while it lives

/** @type {(event: import("./streams.js").FollowedEvent) => void} */
function hear({ name, data }) {
  const told = JSON.parse(data);
  for (const job of name === "snapshot" ? told.jobs : [told]) {
    if (job.job_id !== id) continue;
    if ("completed_pages" in job) add(job);
    if (job.status && job.status !== within(document, "#job-status .status").dataset.status) renew();
  }
}

/**
 * Counts that have come: into the figures, and onto the end of the curve.
 *
 * @type {(counts: JobNews) => void}
 */
function add(counts) {
  for (const [name, number] of Object.entries(counts)) {
    const field = page.querySelector(`#job-state [data-field="${CSS.escape(name)}"]`);
    if (field && typeof number === "number") field.textContent = count(number);
  }
  const [curve, now] = [curves.at(-1), Date.now() / 1000];
  const last = curve?.at.at(-1);
  // a hidden page reads its curves again when it is shown
  if (document.hidden || !curve || last === undefined || now - last < APART || counts.answered_2xx === undefined)
    return;
  const numbers = new Map(Object.entries(counts));
  for (const [name, values] of Object.entries(curve)) {
    if (Array.isArray(values) && name !== "at") values.push(Number(numbers.get(name) ?? 0));
  }
  curve.at.push(now);
  draw();
}

/** For how long the job has run. */
function tick() {
  const place = allWithin(page, "#job-state [data-since]")[0];
  if (!place || document.hidden || isAway()) return;
  place.textContent = duration(Math.round((Date.now() - Date.parse(place.dataset.since ?? "")) / 1000));
}

/** @type {Promise<void> | undefined} */
let renewing;

/** Read the page again, and replace its parts with the new ones, except for a part that has the focus. */
async function renew() {
  renewing ??= take().finally(() => (renewing = undefined));
  await renewing;
}

async function take() {
  const fresh = await pageAt(location.href);
  if (!fresh) return;
  const isFree = (/** @type {string} */ name) => !document.getElementById(name)?.contains(document.activeElement);
  takeParts(fresh, PARTS.filter(isFree));
  refresh(page);
  if (!fresh.querySelector("data-table[live]")) page.querySelector("data-table[live]")?.setAttribute("live", "last");
  if (!("live" in byId("job-page", HTMLElement, fresh).dataset)) {
    delete page.dataset.live;
    stop();
  }
  await read();
  showLatest();
}

let stop = () => {};

function live() {
  const clock = setInterval(tick, 1000);
  const again = () => document.hidden || isAway() || renew().catch(() => {});
  const forget = follow(address("/events", { user_id: document.body.dataset.user }), {
    onEvents: (events) => events.forEach(hear),
    // what happened before, or while the connection was lost
    onState: (state) => state === "open" && again(),
  });
  const timer = setInterval(again, READ_MS);
  document.addEventListener("visibilitychange", again);
  stop = () => {
    document.removeEventListener("visibilitychange", again);
    clearInterval(timer);
    clearInterval(clock);
    forget();
  };
}

/** The newest entry of the time line, where it is longer than its box. */
function showLatest() {
  const list = within(page, ".timeline");
  list.scrollTop = list.scrollHeight;
}

// on a phone the tabs come first
within(page, ".job-fold", HTMLDetailsElement).open = !matchMedia("(max-width: 800px)").matches;
await read();
showLatest();
if ("live" in page.dataset) live();
