// The JSON API, as the page's user: `await api("GET /jobs", { query: { status: "running" } })`.
import { suspect } from "./connection.js";
import { keepForms } from "./kept-forms.js";

/**
 * The name under which this browser keeps something for the page's user, and not for the next one.
 *
 * @param {string} name
 */
export const own = (name) => `${name}:${document.body.dataset.viewer}`;

/** @type {(name: string) => string} */
const meta = (name) => document.querySelector(`meta[name="${name}"]`)?.getAttribute("content") ?? "";

/** The session of this page. Another tab may have ended it since, and somebody else may be signed in now. */
export const SESSION = meta("session");
/** @type {Record<string, string>} */
const named = SESSION ? { "X-Session": SESSION } : {};

document.addEventListener("htmx:config:request", ({ detail }) => Object.assign(detail.ctx.request.headers, named));

/** A refusal of the API. `field` names the wrong field, if it is about one; `retryAfter` is in seconds. */
export class ApiError extends Error {
  /**
   * @param {number} status
   * @param {ApiRefusal} error
   * @param {string} [requestId]
   * @param {number} [retryAfter]
   */
  constructor(status, error, requestId, retryAfter) {
    super(error.message);
    this.status = status;
    this.code = error.code;
    this.detail = error.detail;
    this.field = error.detail?.field;
    this.requestId = requestId;
    this.retryAfter = retryAfter;
  }
}

/**
 * The message for an error that a call has thrown.
 *
 * @param {unknown} error
 */
export function messageOf(error) {
  // `fetch` throws it without a network
  if (error instanceof TypeError) return "The gateway does not answer. Is it running?";
  return error instanceof Error ? error.message : String(error);
}

/**
 * Whether a call ended because nobody wants its answer any more.
 *
 * @param {unknown} error
 */
export const isAbort = (error) => error instanceof DOMException && error.name === "AbortError";

/**
 * @typedef {string | number | boolean | null | undefined} Part
 * @typedef {Record<string, Part | Part[]>} Query
 * @typedef {object} Options
 * @property {unknown} [body] a form or a file, which is sent as it is, or what becomes JSON
 * @property {Query} [query]
 * @property {Record<string, string>} [headers]
 * @property {AbortSignal | undefined} [signal]
 */

/**
 * The address of an API call with its query; values that are null are left out, lists are repeated.
 *
 * @param {string} path
 * @param {Query} query
 */
export function address(path, query = {}) {
  const pairs = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of [value].flat()) if (one != null) pairs.append(name, String(one));
  }
  return pairs.size ? `${path}?${pairs}` : path;
}

/**
 * The parsed JSON of an answer of the API; undefined if it has no body. Throws `ApiError`, and `TypeError` without a network.
 *
 * @template Answer
 * @param {string} call
 * @param {Options} [options]
 * @returns {Promise<Answer>}
 */
export async function api(call, options) {
  const answer = await fetched(call, options);
  return answer.status === 204 ? /** @type {Answer} */ (undefined) : answer.json();
}

/**
 * The answer as a `Response`, for callers that read its text or its headers.
 *
 * @param {string} call
 * @param {Options} [options]
 */
export async function fetched(call, { body, query, headers = {}, signal } = {}) {
  const [method, path] = call.split(" ", 2);
  const token = meta("csrf-token");
  /** @type {Record<string, string>} */
  const sent = { Accept: "application/json", ...named, ...headers };
  if (token && method !== "GET") sent["X-CSRF-Token"] = token;
  const isWhole = body instanceof FormData || body instanceof Blob;
  if (body !== undefined && !isWhole) sent["Content-Type"] = "application/json";
  const answer = await reached(address(path, query), {
    method,
    headers: sent,
    body: isWhole ? body : JSON.stringify(body),
    signal: signal ?? null,
    credentials: "same-origin",
  });
  if (answer.ok) return answer;
  throw await refusal(answer, call);
}

/** @type {typeof fetch} */
async function reached(what, options) {
  try {
    return await fetch(what, options);
  } catch (error) {
    if (!isAbort(error)) suspect();
    throw error;
  }
}

/** Reload the page, so that the gateway shows the form for signing in. What is filled in is kept for the same user. */
function signInAgain() {
  keepForms();
  location.reload();
}

/**
 * A page of the console as a document; undefined where the gateway refuses it.
 *
 * @param {string} url
 * @param {{ signal?: AbortSignal }} options
 */
export async function pageAt(url, { signal } = {}) {
  const headers = { Accept: "text/html", ...named };
  const answer = await reached(url, { headers, credentials: "same-origin", signal: signal ?? null });
  if (answer.redirected && new URL(answer.url).pathname === "/console/sign-in") signInAgain();
  else if (answer.ok) return new DOMParser().parseFromString(await answer.text(), "text/html");
  return undefined;
}

let latest = new AbortController();
/**
 * The same, but undefined also if this function was called again meanwhile: an earlier call's answer may come later.
 *
 * @param {string} url
 */
export async function latestPageAt(url) {
  latest.abort();
  latest = new AbortController();
  try {
    return await pageAt(url, { signal: latest.signal });
  } catch (error) {
    if (isAbort(error)) return undefined;
    throw error;
  }
}

/**
 * @param {Response} answer
 * @param {string} call
 */
async function refusal(answer, call) {
  const told = await answer.json().catch(() => ({}));
  const error = told.error ?? { code: "http_error", message: `the answer was ${answer.status}` };
  // the session is over, or belongs to another user now; a wrong key in the form for signing in does not mean that
  if (answer.status === 401 && call !== "POST /session") signInAgain();
  return new ApiError(answer.status, error, told.request_id, Number(answer.headers.get("Retry-After")) || undefined);
}
