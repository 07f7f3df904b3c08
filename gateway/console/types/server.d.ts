// Answers and events of the gateway, as far as the console reads them. The OpenAPI document has all fields.

/** A time as ISO 8601. */
type Time = string;

interface Job {
  job_id: string;
  status: string;
  spider: string;
  start_urls: string[];
  message: string | null;
  waiting_reason: string | null;
  started_at: Time | null;
  finished_at: Time | null;
  requested_pages: number;
  completed_pages: number;
  items_count: number;
  errors_count: number;
}

/** A list of the console under a name. */
interface View {
  view_id: string;
  name: string;
  query: string;
  shared: boolean;
  default: boolean;
  page_url: string;
}

/** An event about a job. It has only some of the fields. */
type JobNews = Pick<Job, "job_id"> &
  Partial<Job> &
  Partial<Record<`answered_${"2xx" | "3xx" | "4xx" | "5xx"}`, number>>;

/** The counts of an attempt over time: lists of the same length, beginning with the times. */
type Curve = { at: Time[] } & { [count: string]: number[] };

interface Estimate {
  at: Time;
  reckoned_by: string;
  queued: number;
  done_per_s: number;
  found_per_s: number;
}

interface Spider {
  name: string;
  project: string;
  latest: boolean;
}

interface Schedule {
  schedule_id: string;
  name: string | null;
  spider: string | null;
  site: string | null;
  start_urls: string[];
  interval: string;
}

/** A problem of a request: `field` is the name of the wrong field. */
interface Problem {
  field?: string | undefined;
  message: string;
}

interface ApiRefusal {
  code: string;
  message: string;
  detail?: { field?: string; problems?: Problem[] };
}

interface Run {
  due: Time;
  local: string;
  clocks_moved_minutes: number | null;
}

interface Place {
  node: string | null;
  waiting_reason: string | null;
  queue_position: number | null;
}

/** The answer of `POST /crawl/preview`. */
interface Preview {
  accepted: boolean;
  problems: Problem[];
  answer: { job_id: string; status: string; cached: boolean; cached_at: Time; scheduled: boolean };
  place: Place;
  runs: Run[];
  schedule: { interval: string | null; timezone: string; jitter: number | null };
  crawl: {
    project: string;
    version: string;
    timeout: number;
    max_retries: number;
    depth: number | null;
    max_pages: number | null;
  };
}

/** The answer of `POST /alerts/rules/preview`. */
interface RulePreview {
  since: Time;
  runs: number;
  count: number;
  incidents: { group: string; since: Time; until: Time | null; message: string }[];
}

/** The result of one call of an action on many jobs. */
interface BulkReport {
  matched: number;
  as_of: Time;
  done: number;
  refused: number;
  refusals: { job_id: string; message: string }[];
  next: string | null;
  stopped: string | null;
}

/** A position in a log: `1-20480` is behind 20,480 bytes of the first attempt. */
type PositionId = string;

/** A part of a log, with the number of its lines: [attempt, start, end, lines]. */
type LogPart = [number, number, number, number];

interface LogIndex {
  segments: LogPart[];
  end: PositionId;
  all_lines: number;
  levels: Record<string, number>;
  loggers: { name: string }[];
}

interface LogLine {
  /** As what it is folded, and of how many lines the row then is. */
  part?: string | undefined;
  folded?: number;
  id: PositionId;
  /** Where it begins; it ends at `id`. */
  start: number;
  level: string;
  msg: string;
  logger: string;
  ts?: Time | null;
  /** Whether it continues the line before it. */
  cont?: boolean;
  /** How long it is, where `msg` is only its beginning. */
  length?: number | null;
}

interface LogFound {
  segments: LogPart[];
  positions: PositionId[];
  lines: number;
  end: PositionId;
  next: PositionId | null;
}
