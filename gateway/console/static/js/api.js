// The JSON API, as the page's user: `await api("GET /jobs", { query: { status: "running" } })`.

/** The name under which this browser keeps something for the page's user, and not for the next one. */
export const own = (name) => `${name}:${document.body.dataset.viewer}`;

/** The session of this page. Another tab may have ended it since, and somebody else may be signed in now. */
export const SESSION = document.querySelector('meta[name="session"]')?.content ?? "";
const named = SESSION ? { "X-Session": SESSION } : {};

document.addEventListener("htmx:config:request", ({ detail }) => Object.assign(detail.ctx.request.headers, named));

/** A refusal of the API. `field` names the wrong field, if it is about one; `retryAfter` is in seconds. */
export class ApiError extends Error {
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

/** The address of an API call with its query; values that are null are left out, lists are repeated. */
export function address(path, query = {}) {
  const pairs = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) if (one != null) pairs.append(name, one);
  }
  return pairs.size ? `${path}?${pairs}` : path;
}

/** What the API answers, from JSON; undefined if it has no body. Throws `ApiError`, and `TypeError` without a network. */
export async function api(call, options) {
  const answer = await fetched(call, options);
  return answer.status === 204 ? undefined : answer.json();
}

/** The same as a `Response`, for those who read its text or its header fields. */
export async function fetched(call, { body, query, headers = {}, signal } = {}) {
  const [method, path] = call.split(" ", 2);
  const token = document.querySelector('meta[name="csrf-token"]')?.content;
  const sent = { Accept: "application/json", ...named, ...headers };
  if (token && method !== "GET") sent["X-CSRF-Token"] = token;
  const isPlain = body !== undefined && !(body instanceof FormData) && !(body instanceof Blob);
  if (isPlain) sent["Content-Type"] = "application/json";
  const answer = await fetch(address(path, query), {
    method,
    headers: sent,
    body: isPlain ? JSON.stringify(body) : body,
    signal,
    credentials: "same-origin",
  });
  if (answer.ok) return answer;
  throw await refusal(answer, call);
}

/** A page of the console as a document; undefined where the gateway refuses it. */
export async function pageAt(url, { signal } = {}) {
  const answer = await fetch(url, { headers: { Accept: "text/html", ...named }, credentials: "same-origin", signal });
  if (answer.redirected && new URL(answer.url).pathname === "/console/sign-in") location.reload();
  else if (answer.ok) return new DOMParser().parseFromString(await answer.text(), "text/html");
  return undefined;
}

let latest;
/** The same; undefined also if another was asked for in this way meanwhile: of two answers the later one may be the older. */
export async function latestPageAt(url) {
  latest?.abort();
  latest = new AbortController();
  try {
    return await pageAt(url, { signal: latest.signal });
  } catch (error) {
    if (error.name === "AbortError") return undefined;
    throw error;
  }
}

async function refusal(answer, call) {
  const told = await answer.json().catch(() => ({}));
  const error = told.error ?? { code: "http_error", message: `the answer was ${answer.status}` };
  // the gateway leads to the form that begins a session, or the page is the next user's; a wrong key there is no reason
  if (answer.status === 401 && call !== "POST /session") location.reload();
  return new ApiError(answer.status, error, told.request_id, Number(answer.headers.get("Retry-After")) || undefined);
}
