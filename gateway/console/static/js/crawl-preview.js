// Shows the answer of `POST /crawl/preview` in words.
import { h, icon, prose } from "./dom.js";
import { nextRun } from "./moments.js";
import { duration, shown } from "./text.js";
import { time } from "./times.js";

/** What a job waits for, by the reason. */
/** @type {Record<string, string>} */
const waits = JSON.parse(document.getElementById("crawl")?.dataset.waiting ?? "{}");

const SYMBOLS = { good: "ok", warn: "info", bad: "warn" };

/** @type {(found: Problem[]) => HTMLElement[]} */
export const refusal = (found) => [verdict("bad", "This would be refused"), problems(found)];

/** @type {(kind: keyof typeof SYMBOLS, words: string) => HTMLElement} */
const verdict = (kind, words) =>
  h("p", { class: "verdict", "data-kind": kind }, icon(SYMBOLS[kind]), h("span", {}, words));

/**
 * Elements with the lines of a preview.
 *
 * @type {(seen: Preview) => HTMLElement[]}
 */
export function preview(seen) {
  if (!seen.accepted) return refusal(seen.problems);
  const parts = seen.answer.cached ? existing(seen.answer) : fresh(seen);
  if (seen.runs.length)
    parts.push(
      ...soonest(seen.runs, scheduleZone(seen)),
      h("h3", {}, seen.runs.length > 1 ? `Next ${seen.runs.length} runs` : "Next run"),
      runs(seen.runs, scheduleZone(seen)),
    );
  if (seen.schedule?.jitter && !seen.answer.cached)
    parts.push(h("p", { class: "muted small" }, "Because of jitter, each run starts a little earlier or later."));
  return [...parts, defaults(seen.crawl)];
}

/**
 * One line of the preview.
 *
 * @type {(seen: Preview) => string}
 */
export function verdictOf(seen) {
  if (!seen.accepted) return `This would be refused: ${shown(seen.problems[0]?.message, 160)}`;
  if (seen.answer.cached)
    return `${seen.answer.scheduled ? "This schedule" : "This crawl"} already exists and will be shown.`;
  return seen.answer.scheduled ? "" : place(seen.place);
}

/** @param {Problem[]} found */
export function problems(found) {
  return h(
    "ul",
    { class: "list" },
    found.map((one) => h("li", {}, prose(one.message))),
  );
}

/** @type {(answer: Preview["answer"]) => HTMLElement[]} */
function existing({ job_id: id, status, cached_at: since, scheduled }) {
  const path = scheduled && ["active", "paused", "ended"].includes(status) ? "schedules" : "jobs";
  const link = h("a", { href: `/console/${path}/${encodeURIComponent(id)}` }, id.slice(0, 8));
  return [
    verdict("warn", scheduled ? "An identical schedule already exists" : "An identical crawl already exists"),
    h(
      "p",
      {},
      "You will get ",
      link,
      ` (${status}, created `,
      time(since),
      "). Check “Run even if the same crawl ran recently” to start a new one.",
    ),
  ];
}

/** @type {(seen: Preview) => HTMLElement[]} */
function fresh({ answer, place: where }) {
  if (answer.scheduled) return [verdict("good", "Will be scheduled")];
  return where.waiting_reason
    ? [verdict("warn", "Will wait in the queue"), h("p", {}, place(where))]
    : [verdict("good", place(where))];
}

/** @type {(place: Place) => string} */
function place({ node, waiting_reason: reason, queue_position: position }) {
  const ahead = position && position > 1 ? `${position - 1} ${position === 2 ? "crawl" : "crawls"}` : "";
  if (!reason)
    return ahead
      ? `Starts on ${shown(node, 60)}, with ${ahead} ahead in the queue.`
      : `Starts immediately on ${shown(node, 60)}.`;
  const words = waits[reason] ?? `waiting: ${reason}`;
  return `${words.charAt(0).toUpperCase()}${words.slice(1)}.${ahead && ` ${ahead} ahead in the queue.`}`;
}

/**
 * The zone of a schedule by the clock; null for one run, and for runs at a fixed interval.
 *
 * @type {(seen: Preview) => string | null}
 */
export function scheduleZone({ schedule: { interval, timezone } }) {
  return interval && !/^every\b/i.test(interval) ? timezone : null;
}

/**
 * The first of the coming runs in a sentence.
 *
 * @param {Run[]} coming
 * @param {string | null} zone
 */
export const soonest = ([first], zone) => (first ? [h("p", {}, nextRun(new Date(first.due), zone))] : []);

/**
 * Coming runs in their zone, or in the user's own; changes of the clock are marked.
 *
 * @param {Run[]} coming
 * @param {string | null} zone
 */
export function runs(coming, zone) {
  return h(
    "ol",
    { class: "runs" },
    coming.map((run) =>
      h(
        "li",
        {},
        h("time", { datetime: run.due }, zone ? local(run.local) : local(inUsersZone(run.due))),
        " ",
        clock(run),
      ),
    ),
  );
}

const DAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];

/**
 * `Tue 2027-06-01 09:00 +02:00`, from ISO with an offset.
 *
 * @type {(iso: string) => string}
 */
export function local(iso) {
  const [, day, clock = "", offset] = iso.match(/^(\d{4}-\d\d-\d\d)T(\d\d:\d\d(?::\d\d)?)(?:\.\d+)?(.*)$/) ?? [];
  return `${DAYS[new Date(`${day}T00:00:00Z`).getUTCDay()]} ${day} ${clock.replace(/:00$/, (end) => (clock.length > 5 ? "" : end))} ${offset === "+00:00" || offset === "Z" ? "UTC" : offset}`;
}

/** @type {(iso: string) => string} */
function inUsersZone(iso) {
  const date = new Date(iso);
  const minutes = -date.getTimezoneOffset();
  const shifted = new Date(date.getTime() + minutes * 60_000).toISOString().slice(0, 19);
  /** @type {(number: number) => string} */
  const part = (number) => String(Math.floor(number)).padStart(2, "0");
  return `${shifted}${minutes < 0 ? "-" : "+"}${part(Math.abs(minutes) / 60)}:${part(Math.abs(minutes) % 60)}`;
}

/** @type {(run: Pick<Run, "clocks_moved_minutes">) => Child} */
export function clock({ clocks_moved_minutes: moved }) {
  if (!moved) return "";
  return h(
    "span",
    { class: "clock" },
    `clocks go ${moved > 0 ? "forward" : "back"} ${duration(Math.abs(moved) * 60)} before this run`,
  );
}

/** @type {(crawl: Preview["crawl"]) => HTMLElement} */
function defaults(crawl) {
  /** @type {[string, string | number][]} */
  const facts = [
    ["Project", crawl.project],
    ["Version", crawl.version],
    ["Timeout (s)", crawl.timeout],
    ["Max retries", crawl.max_retries],
    ["Depth", crawl.depth ?? "set by the spider"],
    ["Max pages", crawl.max_pages ?? "no limit"],
  ];
  return h(
    "details",
    {},
    h("summary", {}, "Defaults"),
    h(
      "dl",
      { class: "facts" },
      facts
        .filter(([, value]) => value != null)
        .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, shown(value)))),
    ),
  );
}
