// Rows and counters that follow their jobs: an element with `data-job`, inside it elements with `data-field`. A table
// has in `data-waiting` what each reason to wait means, as JSON.
// Rows are updated in place; their order never changes.
import { isAway } from "./connection.js";
import { allWithin } from "./dom.js";
import { setStatus } from "./status.js";
import { follow } from "./streams.js";
import { count, duration, shown } from "./text.js";

const TICK_MS = 5000;
/** @type {("requested_pages" | "completed_pages" | "items_count" | "errors_count")[]} */
const COUNTS = ["requested_pages", "completed_pages", "items_count", "errors_count"];

/**
 * Follow all jobs that the user may see, or those of `user`. `onStranger(event)` is called for a job that the page does
 * not show, `onChange(event)` when a job that it shows has another status, and `onGap()` when events may have been
 * missed: at the beginning, and after the connection was lost. Returns a function that ends the following.
 *
 * @param {{ user?: string | undefined, onStranger?: (job: JobNews) => void, onChange?: (job: JobNews) => void, onGap?: () => void }} hooks
 */
export function followRows({ user, onStranger, onChange, onGap } = {}) {
  const path = user ? `/events?${new URLSearchParams({ user_id: user })}` : "/events";
  const clock = setInterval(tick, TICK_MS);
  let isPast = false;
  let wasLost = false;
  const stop = follow(path, {
    onGreeting: () => {
      // events that another tab has received before may be older than this page
      isPast = true;
      queueMicrotask(() => (isPast = false));
      onGap?.();
    },
    onState: (state) => {
      if (wasLost && state === "open") onGap?.();
      wasLost = state === "lost" || (wasLost && state !== "open");
    },
    onEvents: (events) => {
      if (!isPast) for (const { name, data } of events) hear(name, JSON.parse(data));
    },
  });
  /** @type {(name: string, data: JobNews & { jobs: JobNews[] }) => void} */
  function hear(name, data) {
    if (name === "snapshot") for (const job of data.jobs) meet("status", job);
    else if (name === "status" || name === "progress") meet(name, data);
  }
  /** @type {(name: string, job: JobNews) => void} */
  function meet(name, job) {
    const rows = rowsOf(job);
    if (!rows.length && name === "status") onStranger?.(job);
    let changed = false;
    for (const row of rows) changed = update(row, name, job) || changed;
    if (changed) onChange?.(job);
  }
  return () => {
    clearInterval(clock);
    stop();
  };
}

/** @type {(job: JobNews) => HTMLElement[]} */
const rowsOf = (job) => allWithin(document, `[data-job="${CSS.escape(job.job_id)}"]`);

/**
 * Bring the rows of a job up to date with what the API says of it.
 *
 * @type {(job: JobNews) => void}
 */
export function renew(job) {
  for (const row of rowsOf(job)) update(row, "status", job);
}

/**
 * Returns whether the status has changed.
 *
 * @type {(row: HTMLElement, type: string, job: JobNews) => boolean}
 */
function update(row, type, job) {
  /** @type {(name: string) => HTMLElement | null} */
  const field = (name) => row.querySelector(`[data-field="${name}"]`);
  for (const name of COUNTS) if (name in job) field(name)?.replaceChildren(count(job[name]));
  if (type !== "status") return false;
  /** @type {HTMLElement | null | undefined} */
  const status = field("status")?.querySelector(".status");
  const changed = Boolean(status) && status?.dataset.status !== job.status;
  if (status && job.status) setStatus(status, job.status);
  if (job.status === "running") row.dataset.started ??= job.started_at ?? new Date().toISOString();
  else if (row.dataset.started) {
    tickRow(row);
    delete row.dataset.started;
  }
  // the job may have ended without an event that said it was running
  if (job.started_at && job.finished_at) {
    const ran = Date.parse(job.finished_at) - Date.parse(job.started_at);
    field("ran")?.replaceChildren(duration(ran / 1000));
  }
  const why = field("message");
  if (why && (changed || job.message || job.waiting_reason)) why.textContent = said(job, row);
  return changed;
}

/** @type {(job: JobNews, row: HTMLElement) => string} */
function said(job, row) {
  const words = JSON.parse(row.closest("[data-waiting]")?.getAttribute("data-waiting") ?? "{}");
  if (job.waiting_reason) return words[job.waiting_reason] ?? `waiting: ${job.waiting_reason.replaceAll("_", " ")}`;
  return job.message && job.status !== "finished" ? shown(job.message, 160) : "";
}

function tick() {
  if (!document.hidden && !isAway()) allWithin(document, "[data-job][data-started]").forEach(tickRow);
}

/** @type {(row: HTMLElement) => void} */
function tickRow(row) {
  const ran = (Date.now() - Date.parse(row.dataset.started ?? "")) / 1000;
  row.querySelector('[data-field="ran"]')?.replaceChildren(duration(ran));
}
