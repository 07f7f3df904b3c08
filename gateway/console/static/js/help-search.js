// What the palette finds in the documentation: its pages are searched by the worker of the site at /help, so that both
// find the same in the same order. What one can do in the console is searched with them.
import { api } from "./api.js";

/** @typedef {{ title: string, page: string, address: string }} HelpPage */
/** @typedef {{ acts: number[], pages: HelpPage[] }} Answer the acts by their numbers, the best first */
/** @typedef {{ location: string, level: number, title: string, text: string, path: string[], tags: string[] }} Section */
/** @typedef {(text: string) => Promise<Answer | null>} Ask null where the documentation is not built */

const HELP = "/help/";
const ACT = "act:";
/** An act is said before all pages if it answers at least that well, beside the best answer. */
const FIRST = 0.25;
/** The first message builds the index, and each of the others asks it. */
const BUILD = 0;
const ASK = 2;
const ANSWER = 3;

/**
 * @param {{ words: string, said: string }[]} acts
 * @returns {Promise<Ask>}
 */
export async function openHelp(acts) {
  /** @type {{ worker: string | null }} */
  const { worker: address } = await api("GET /console/help-search").catch(() => ({ worker: null }));
  if (!address) return async () => null;
  const worker = new Worker(address);
  /** @type {{ config: unknown, items: Section[] }} */
  const { config, items } = await (await fetch(`${HELP}search.json`)).json();
  const sections = [...acts.map(sectionOf), ...items.filter(isForUsers)];
  await asked(worker, { type: BUILD, data: { config, items: sections } });
  const pages = new Map(items.map((one) => [one.location, textOf(one.title)]));
  return async (text) => {
    const { type, data } = await asked(worker, { type: ASK, data: { input: text } });
    if (type !== ANSWER) return null;
    /** @type {{ id: number, score: number }[]} */
    const found = data.items;
    const enough = FIRST * Math.max(0, ...found.map((one) => one.score));
    const isAct = (/** @type {{ id: number }} */ one) => one.id < acts.length;
    return {
      acts: found.filter((one) => isAct(one) && one.score >= enough).map((one) => one.id),
      pages: found.filter((one) => !isAct(one)).map((one) => pageOf(sections[one.id], pages)),
    };
  };
}

/** The worker answers in the order in which it is asked. @type {Promise<unknown>} */
let last = Promise.resolve();

/** @type {(worker: Worker, message: object) => Promise<{ type: number, data: any }>} */
function asked(worker, message) {
  const answer = last.then(
    () =>
      new Promise((resolve) => {
        worker.onmessage = (event) => resolve(event.data);
        worker.onerror = () => resolve({ type: -1, data: null });
        worker.postMessage(message);
      }),
  );
  last = answer;
  return answer;
}

/** @type {(act: { words: string, said: string }, number: number) => Section} */
const sectionOf = ({ words, said }, number) => ({
  location: `${ACT}${number}`,
  level: 1,
  title: words,
  text: said,
  path: [],
  tags: [],
});

/** Not the changelog or the decisions. @param {Section} section */
function isForUsers({ location, title }) {
  return location.startsWith("docs/") && !location.startsWith("docs/decisions/") && Boolean(title);
}

/** @type {(section: Section | undefined, titles: Map<string, string>) => HelpPage} */
function pageOf(section, titles) {
  const location = section?.location ?? "";
  const title = titles.get(location) ?? "";
  const page = titles.get(location.split("#")[0] ?? "") ?? "";
  return { title, page: page === title ? "" : page, address: HELP + location };
}

/** Titles are HTML: `<code>schedules</code>`. @param {string} html */
function textOf(html) {
  return new DOMParser().parseFromString(html, "text/html").body.textContent ?? "";
}
