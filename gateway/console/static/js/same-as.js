// A request as other programs make it: for a shell with curl, for our command line, and in Python with httpx2.
import { INVISIBLE } from "./text.js";

/**
 * What a program asks for; `withKey`: it needs a key, which is in DISCOVERYBOT_KEY; `options`: those of the command line
 * that the form's fields name, by field.
 *
 * @typedef {{
 *   origin: string,
 *   path: string,
 *   body: Record<string, unknown>,
 *   withKey: boolean,
 *   options?: Record<string, string>,
 * }} Asked
 */

/**
 * JSON whose invisible characters are escapes.
 *
 * @type {(value: unknown, indent?: number) => string}
 */
export const json = (value, indent) =>
  JSON.stringify(value, null, indent).replace(INVISIBLE, (found) =>
    found === "\n" ? found : `\\u${found.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );

/**
 * The text as one word for a POSIX shell, in quotes if necessary.
 *
 * @type {(text: string) => string}
 */
export const word = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);

/**
 * A shell's, with curl.
 *
 * @type {(asked: Asked) => string}
 */
export function curl({ origin, path, body, withKey }) {
  const lines = [`curl -sS ${word(origin + path)}`];
  if (withKey) lines.push(`-H "Authorization: Bearer $DISCOVERYBOT_KEY"`);
  lines.push(`-H 'Content-Type: application/json'`, `--data-raw ${word(json(body))}`);
  return lines.join(" \\\n  ");
}

/**
 * Python, with httpx2.
 *
 * @type {(asked: Asked) => string}
 */
export function python({ origin, path, body, withKey }) {
  const lines = ["import httpx2", "", "answer = httpx2.post(", `    ${json(origin + path)},`];
  if (withKey) {
    lines.unshift("import os", "");
    lines.push(`    headers={"Authorization": f"Bearer {os.environ['DISCOVERYBOT_KEY']}"},`);
  }
  lines.push(
    `    json=${literal(body, "    ")},`,
    "    timeout=30,",
    ")",
    "answer.raise_for_status()",
    "print(answer.text)",
  );
  return lines.join("\n");
}

/**
 * A value as Python spells it.
 *
 * @type {(value: unknown, margin?: string) => string}
 */
function literal(value, margin = "") {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return json(value);
  const inner = `${margin}    `;
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  const parts = Array.isArray(value)
    ? value.map((one) => literal(one, inner))
    : Object.entries(value ?? {}).map(([name, one]) => `${json(name)}: ${literal(one, inner)}`);
  if (!parts.length) return open + close;
  return `${open}\n${parts.map((part) => `${inner}${part},\n`).join("")}${margin}${close}`;
}

/**
 * Fields that have an option of the same meaning, with its name.
 *
 * @type {Record<string, string>}
 */
const OPTIONS = {
  project: "--project",
  version: "--version",
  user_id: "--user",
  schedule_at: "--at",
  timezone: "--timezone",
  jitter: "--jitter",
  overlap: "--overlap",
  ends_at: "--until",
  max_runs: "--max-runs",
};

/**
 * Our command line; `without` names the fields that it has no option for.
 *
 * @param {Asked} asked
 */
export function commandLine({ origin, body, options }) {
  const known = { ...OPTIONS, ...options };
  const words = [`discoverybot crawl ${word(String(body.spider ?? ""))}`, ...texts(body.start_urls).map(word)];
  const without = [];
  for (const [name, value] of Object.entries(body)) {
    if (name in known) words.push(`${known[name]}=${word(String(value))}`);
    else if (name === "interval") words.push(interval(String(value)));
    else if (name === "tags") words.push(...texts(value).map((tag) => `--tag=${word(tag)}`));
    else if (name === "ignore_cache") words.push(...(value ? ["--ignore-cache"] : []));
    else if (name === "params" || name === "expect") words.push(`--${name}=${word(json(value))}`);
    else if (name === "dataset") words.push(`--dataset=${word(typeof value === "string" ? value : json(value))}`);
    else if (name === "settings") words.push(...pairs("--setting", value, json));
    else if (name === "env") words.push(...pairs("--env", value, String));
    else if (name !== "spider" && name !== "start_urls") without.push(name);
  }
  words.push(`--url=${word(origin)}`);
  return { text: words.join(" \\\n  "), without };
}

/** @type {(value: unknown) => string[]} */
const texts = (value) => (Array.isArray(value) ? value.map(String) : []);

/** @type {(text: string) => string} */
function interval(text) {
  const every = text.match(/^\s*every\s+(.*?)\s*$/i);
  return every ? `--every=${word(every[1] ?? "")}` : `--cron=${word(text)}`;
}

/** @type {(option: string, values: unknown, spelled: (value: unknown) => string) => string[]} */
const pairs = (option, values, spelled) =>
  Object.entries(values ?? {}).map(([name, value]) => `${option}=${word(`${name}=${spelled(value)}`)}`);
