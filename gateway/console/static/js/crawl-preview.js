// What `POST /crawl/preview` says, for people.
import { h, icon, prose } from "./dom.js";
import { duration, shown } from "./text.js";
import { time } from "./times.js";

/** What a job waits for, by the reason. */
/** @type {Record<string, string>} */
const waits = JSON.parse(document.getElementById("crawl")?.dataset.waiting ?? "{}");

const SYMBOLS = { good: "ok", warn: "info", bad: "warn" };

/** @type {(found: Problem[]) => HTMLElement[]} */
export const refusal = (found) => [verdict("bad", "It would be refused"), problems(found)];

/** @type {(kind: keyof typeof SYMBOLS, words: string) => HTMLElement} */
const verdict = (kind, words) =>
  h("p", { class: "verdict", "data-kind": kind }, icon(SYMBOLS[kind]), h("span", {}, words));

/**
 * Elements that say what would happen.
 *
 * @type {(seen: Preview) => HTMLElement[]}
 */
export function preview(seen) {
  if (!seen.accepted) return refusal(seen.problems);
  const parts = seen.answer.cached ? existing(seen.answer) : fresh(seen);
  if (seen.runs.length)
    parts.push(
      h("h3", {}, seen.runs.length > 1 ? `The next ${seen.runs.length} runs` : "The run"),
      runs(seen.runs, zoneOf(seen)),
    );
  if (seen.schedule?.jitter && !seen.answer.cached)
    parts.push(h("p", { class: "muted small" }, "Each run is moved a little, by the jitter."));
  return [...parts, defaults(seen.crawl)];
}

/**
 * One line of it.
 *
 * @type {(seen: Preview) => string}
 */
export function verdictOf(seen) {
  if (!seen.accepted) return `It would be refused: ${shown(seen.problems[0]?.message, 160)}`;
  if (seen.answer.cached)
    return `${seen.answer.scheduled ? "This schedule" : "This crawl"} exists already, and will be shown.`;
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
    verdict("warn", scheduled ? "The same is scheduled already" : "The same crawl exists already"),
    h(
      "p",
      {},
      "You will get ",
      link,
      `, which is ${status} and was asked for `,
      time(since),
      ". Tick “Crawl again” for a new one.",
    ),
  ];
}

/** @type {(seen: Preview) => HTMLElement[]} */
function fresh({ answer, place: where }) {
  if (answer.scheduled) return [verdict("good", "It will be scheduled")];
  return where.waiting_reason
    ? [verdict("warn", "It will wait for its turn"), h("p", {}, place(where))]
    : [verdict("good", place(where))];
}

/** @type {(place: Place) => string} */
function place({ node, waiting_reason: reason, queue_position: position }) {
  const ahead = position && position > 1 ? `${position - 1} ${position === 2 ? "crawl" : "crawls"}` : "";
  const goes = position === 2 ? "goes" : "go";
  if (!reason)
    return ahead
      ? `It starts on ${shown(node, 60)}, after ${ahead} that ${goes} first.`
      : `It starts at once, on ${shown(node, 60)}.`;
  return `It ${waits[reason] ?? `waits: ${reason}`}.${ahead && ` ${ahead} ${goes} first.`}`;
}

/** @type {(seen: Preview) => string | null} */
const zoneOf = (seen) => (seen.schedule.interval ? seen.schedule.timezone : null);

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
    ["Seconds at most", crawl.timeout],
    ["Retries", crawl.max_retries],
    ["Depth", crawl.depth ?? "as the spider has it"],
    ["Pages at most", crawl.max_pages ?? "no limit"],
  ];
  return h(
    "details",
    {},
    h("summary", {}, "With these defaults"),
    h(
      "dl",
      { class: "facts" },
      facts
        .filter(([, value]) => value != null)
        .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, shown(value)))),
    ),
  );
}
