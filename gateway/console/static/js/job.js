// The page of a job while it lives: counters and curves from the events that all tabs share; where it stands, its time
// line and its buttons from the page itself whenever its status changes.
import { address, api, pageAt } from "./api.js";
import { follow } from "./streams.js";
import { count, duration, h } from "./text.js";
import { exact, refresh } from "./times.js";
import "./line-chart.js";

/** Events add points to the curves; after so long the curves and the estimate are read anew, and what events missed. */
const READ_MS = 15_000;
/** Points come no closer than that, in seconds. */
const APART = 0.9;
/** Parts of the page that say where the job stands. */
const PARTS = ["job-status", "job-actions", "job-state", "job-life", "job-wait", "tab-said", "tab-nothing"];
const CLASSES = [
  ["2xx", "--good"],
  ["3xx", "--accent"],
  ["4xx", "--warn"],
  ["5xx", "--bad"],
];
const ENDS = {
  queue: "its queue is empty",
  max_pages: "it has as many pages as it may",
  max_items: "it has as many items as it may",
  timeout: "its time is over",
};

const page = document.getElementById("job-page");
const id = page.dataset.job;
const charts = Object.fromEntries([...page.querySelectorAll("line-chart")].map((chart) => [chart.id, chart]));
/** Of the attempts: { at, requested_pages, … }, lists of the same length. */
let curves = [];

async function read() {
  const progress = await api(`GET /jobs/${id}/progress`);
  curves = progress.attempts.map((curve) => ({ ...curve, at: curve.at.map((moment) => Date.parse(moment) / 1000) }));
  draw();
  tell(progress.estimate);
}

function draw() {
  const card = document.getElementById("job-curves");
  card.hidden = !curves.some(({ at }) => at.length > 1);
  if (card.hidden) return;
  charts.pace.show(
    lines(
      [
        ["pages", "completed_pages"],
        ["items", "items_count"],
      ],
      rate,
    ),
  );
  charts.queue.show(
    lines(
      [
        ["queued", queued],
        ["done", done],
      ],
      value,
    ),
  );
  charts.answers.show(
    lines(
      CLASSES.map(([name, colour]) => [name, `answered_${name}`, colour]),
      rate,
    ),
  );
  charts.errors.show(lines([["errors", "errors_count", "--bad"]], value));
}

const done = (curve, place) => curve.completed_pages[place] + curve.errors_count[place];
/** What the crawl has left behind at its end waits no more. */
const queued = (curve, place) =>
  isEnd(curve, place) ? 0 : Math.max(0, curve.requested_pages[place] - done(curve, place));
const isEnd = (curve, place) => !("live" in page.dataset) && curve === curves.at(-1) && place === curve.at.length - 1;
const value = (of, curve, place) => (typeof of === "string" ? curve[of][place] : of(curve, place));

/** A second, since the point before; none at the beginning of an attempt. */
function rate(of, curve, place) {
  if (!place) return null;
  const more = value(of, curve, place) - value(of, curve, place - 1);
  return Math.max(0, more) / (curve.at[place] - curve.at[place - 1]);
}

/** All attempts one after the other, with a gap between them. */
function lines(wanted, how) {
  const whole = curves.filter(({ at }) => at.length);
  const joined = (of, gap) =>
    whole.flatMap((curve, number) => [
      ...(number ? [gap(curve)] : []),
      ...curve.at.map((_, place) => of(curve, place)),
    ]);
  return {
    at: joined(
      (curve, place) => curve.at[place],
      (curve) => curve.at[0] - 0.001,
    ),
    lines: wanted.map(([name, of, colour]) => ({
      name,
      colour,
      values: joined(
        (curve, place) => how(of, curve, place),
        () => null,
      ),
    })),
  };
}

function tell(estimate) {
  const place = document.getElementById("job-estimate");
  if (!place) return;
  place.hidden = !estimate;
  if (!estimate) return;
  const left = duration((Date.parse(estimate.at) - Date.now()) / 1000);
  const begins =
    estimate.reckoned_by === "timeout"
      ? "Its queue does not say when it ends: at the latest in"
      : "At this pace it ends in about";
  const pace = `${count(estimate.queued)} requests wait or are under way; ${count(estimate.done_per_s)} a second end, ${count(estimate.found_per_s)} are new.`;
  const moment = h("time", { datetime: estimate.at, "data-exact": true }, exact(new Date(estimate.at)));
  place.replaceChildren(
    `${begins} ${left} (`,
    moment,
    `), when ${ENDS[estimate.reckoned_by]}. `,
    h("span", { class: "muted" }, pace),
  );
}

// --- while it lives

function hear({ name, data }) {
  const told = JSON.parse(data);
  for (const job of name === "snapshot" ? told.jobs : [told]) {
    if (job.job_id !== id) continue;
    if ("completed_pages" in job) add(job);
    if (job.status && job.status !== document.querySelector("#job-status .status")?.dataset.status) renew();
  }
}

/** Counts that have come: into the figures, and onto the end of the curve. */
function add(counts) {
  for (const [name, number] of Object.entries(counts)) {
    const field = page.querySelector(`#job-state [data-field="${CSS.escape(name)}"]`);
    if (field && typeof number === "number") field.textContent = count(number);
  }
  const [curve, now] = [curves.at(-1), Date.now() / 1000];
  // a page that nobody sees reads its curves anew once it is seen
  if (document.hidden || !curve?.at.length || now - curve.at.at(-1) < APART || counts.answered_2xx === undefined)
    return;
  for (const [name, values] of Object.entries(curve))
    if (Array.isArray(values) && name !== "at") values.push(counts[name]);
  curve.at.push(now);
  draw();
}

/** For how long it runs. */
function tick() {
  const place = page.querySelector("#job-state [data-since]");
  if (place && !document.hidden)
    place.textContent = duration(Math.round((Date.now() - Date.parse(place.dataset.since)) / 1000));
}

let renewing;

/** Read the page again, and put its parts in the place of the old ones; but for one that the user is in. */
async function renew() {
  renewing ??= take().finally(() => (renewing = undefined));
  await renewing;
}

async function take() {
  const fresh = await pageAt(location.href);
  if (!fresh) return;
  for (const name of PARTS) {
    const [old, now] = [document.getElementById(name), fresh.getElementById(name)];
    if (old && now && !old.contains(document.activeElement)) old.replaceWith(document.importNode(now, true));
  }
  refresh(page);
  if (!fresh.querySelector("data-table[live]")) page.querySelector("data-table[live]")?.setAttribute("live", "last");
  if (!("live" in fresh.getElementById("job-page").dataset)) {
    delete page.dataset.live;
    stop();
  }
  await read();
  showLatest();
}

let stop = () => {};

function live() {
  const clock = setInterval(tick, 1000);
  const again = () => document.hidden || renew().catch(() => {});
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
  const list = page.querySelector(".timeline");
  list.scrollTop = list.scrollHeight;
}

// on a phone the tabs come first
page.querySelector(".job-fold").open = !matchMedia("(max-width: 800px)").matches;
await read();
showLatest();
if ("live" in page.dataset) live();
