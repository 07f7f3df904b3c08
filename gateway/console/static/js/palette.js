// Ctrl-K: go to a page, a job, a spider, a site and so on, to the help, or do what the page offers, by typing a few letters of it.
import { api } from "./api.js";
import { allWithin, h, icon } from "./dom.js";
import { openHelp } from "./help-search.js";
import { ACTS, ROLLBACK_SAID } from "./palette-acts.js";
import { shown } from "./text.js";

const MOST = 8;
const PAUSE = 150;
const BUTTONS = "main .head .actions :is(a, button), main [data-offered], #menu .foot button";
const JOB_ID = /^[0-9a-f]{32}$/;

/** @typedef {{ group: string, words: string, act: () => void, more: string, said: string }} Choice */

/** @type {Promise<[places: Choice[][], help: Help]> | undefined} */
let known;

/** Lists of places and the help do not change while somebody types, so they are requested once per page. */
function things() {
  known ??= Promise.all([Promise.all([spiders(), projects(), datasets(), sites(), siteRuns()]), acts().then(help)]);
  return known;
}

async function spiders() {
  /** @type {{ spiders: Spider[] }} */
  const answer = await api("GET /spiders", { query: { limit: 1000 } }).catch(() => ({ spiders: [] }));
  return answer.spiders
    .filter((one) => one.latest)
    .map(({ name, project }) =>
      choice("New crawl", name, goTo(link("/console/crawl", { project, spider: name })), project),
    );
}

async function projects() {
  /** @type {{ projects: { name: string }[] }} */
  const answer = await api("GET /projects").catch(() => ({ projects: [] }));
  return answer.projects.map(({ name }) => choice("Project", name, goTo(link(`/console/projects/${part(name)}`))));
}

async function datasets() {
  /** @type {{ datasets: { name: string, user_id: string }[] }} */
  const answer = await api("GET /datasets", { query: { limit: 200, user_id: user() } }).catch(() => ({
    datasets: [],
  }));
  return answer.datasets.map(({ name, user_id: owner }) =>
    choice("Dataset", name, goTo(link(`/console/datasets/${part(name)}`, { owner })), owner),
  );
}

/** @type {Promise<{ sites: { site_name: string }[] }> | undefined} */
let listed;

function allSites() {
  listed ??= api("GET /jobs/sites").catch(() => ({ sites: [] }));
  return listed;
}

async function sites() {
  const { sites: found } = await allSites();
  return found.map(({ site_name: name }) => choice("Site", name, goTo(link(`/console/sites/${part(name)}`))));
}

async function siteRuns() {
  const { sites: found } = await allSites();
  return found.map(({ site_name: name }) => choice("Site runs", name, goTo(link("/console/jobs", { site: name }))));
}

/** @typedef {(text: string) => Promise<{ acts: Choice[], pages: Choice[] }>} Help */

/** Acts and pages of the documentation, ranked together. @type {(acts: Choice[]) => Promise<Help>} */
async function help(acts) {
  const ask = await openHelp(acts).catch(() => async () => null);
  return async (text) => {
    const answer = await ask(text);
    // without the documentation acts are found as everything else is
    if (!answer) return { acts: acts.filter((one) => has(`${one.words} ${one.said}`, text)), pages: [] };
    const pages = answer.pages.map(({ title, page, address }) => choice("Help", title, goTo(address), page));
    return { acts: answer.acts.flatMap((number) => acts[number] ?? []), pages };
  };
}

/** Acts that have a page of their own, for those whose menu has it. */
async function acts() {
  const isThere = (/** @type {string} */ path) =>
    document.querySelector(`#menu a[href="${CSS.escape(link(path.replace(/[?#].*/, "")))}"]`) !== null;
  const usual = ACTS.filter(({ path }) => isThere(path)).map(({ words, path, said }) =>
    choice("Action", words, goTo(withUser(path)), "", said),
  );
  return [...(isThere("/console/keys") ? await rollbacks() : []), ...usual];
}

async function rollbacks() {
  /** @type {{ projects: { name: string, previous: string | null }[] }} */
  const { projects: all } = await api("GET /projects").catch(() => ({ projects: [] }));
  return all
    .filter((one) => one.previous)
    .map(({ name, previous }) =>
      choice(
        "Action",
        `Roll back ${name} to ${previous}…`,
        goTo(link(`/console/projects/${part(name)}`)),
        "",
        ROLLBACK_SAID,
      ),
    );
}

const part = encodeURIComponent;
const user = () => document.body.dataset.user;

/** @type {(path: string, query?: Record<string, string>) => string} */
function link(path, query = {}) {
  const pairs = new URLSearchParams({ ...query, ...(user() ? { user_id: user() } : {}) });
  return pairs.size ? `${path}?${pairs}` : path;
}

/** The address with its own query, and the user whose view it is. @param {string} path */
function withUser(path) {
  const address = new URL(path, location.origin);
  const given = user();
  if (given) address.searchParams.set("user_id", given);
  return address.pathname + address.search + address.hash;
}

/** Entries of the page itself: its places, and the buttons beside its heading. */
function offered() {
  const click = (/** @type {string} */ group, /** @type {HTMLElement} */ one) =>
    choice(group, (one.textContent ?? "").trim(), () => one.click(), one.dataset.key);
  const places = allWithin(document, "#menu a").slice(1);
  const buttons = allWithin(document, BUTTONS).filter((one) => !one.matches(":disabled"));
  return [...buttons.map((one) => click("Action", one)), ...places.map((one) => click("Go to", one))];
}

/** @type {(group: string, words: string, act: () => void, more?: string, said?: string) => Choice} */
const choice = (group, words, act, more = "", said = "") => ({ group, words, act, more, said });
/** @type {(address: string) => () => void} */
const goTo = (address) => () => location.assign(address);

/** Whether the words have all parts of the text. @type {(words: string, text: string) => boolean} */
const has = (words, text) =>
  text
    .toLowerCase()
    .split(/\s+/)
    .every((part) => words.toLowerCase().includes(part));

/** @type {(typed: string, signal: AbortSignal) => Promise<Choice[]>} */
async function found(typed, signal) {
  const text = typed.trim();
  if (!text) return offered();
  const matches = (/** @type {Choice} */ one) => has(one.words, text);
  const [[places, help], schedules, jobs] = await Promise.all([
    things(),
    schedulesWith(text, signal),
    jobsWith(text, signal),
  ]);
  const { acts, pages } = await help(text);
  const all = choice("Search", `All jobs matching “${shown(text, 60)}”`, goTo(link("/console/jobs", { q: text })));
  return [
    ...offered().filter(matches),
    ...acts,
    ...places.flatMap((some) => some.filter(matches).slice(0, MOST)),
    ...schedules,
    ...jobs,
    ...pages.slice(0, MOST),
    all,
  ];
}

/** @type {(text: string, signal: AbortSignal) => Promise<Choice[]>} */
async function schedulesWith(text, signal) {
  /** @type {{ schedules: Schedule[] }} */
  const page = await api("GET /schedules", { query: { q: text, limit: MOST, user_id: user() }, signal }).catch(
    () => ({ schedules: [] }),
  );
  return page.schedules.map((one) =>
    choice(
      "Schedule",
      one.name ?? [one.spider ?? one.site, one.start_urls[0]].join(" "),
      goTo(link(`/console/schedules/${one.schedule_id}`)),
      one.interval,
    ),
  );
}

/** @type {(text: string, signal: AbortSignal) => Promise<Choice[]>} */
async function jobsWith(text, signal) {
  /** @type {{ jobs: Job[] }} */
  const page = await api("GET /jobs", { query: { q: text, limit: MOST, user_id: user() }, signal }).catch(() => ({
    jobs: [],
  }));
  const jobs = page.jobs.map((job) =>
    choice(
      "Job",
      `${job.spider} ${job.start_urls[0] ?? ""}`,
      goTo(link(`/console/jobs/${job.job_id}`)),
      `${job.status}, ${job.job_id.slice(0, 8)}`,
    ),
  );
  if (!jobs.length && JOB_ID.test(text)) jobs.push(choice("Job", text, goTo(link(`/console/jobs/${text}`))));
  return jobs;
}

export function open() {
  new Palette().open();
}

class Palette {
  /**
   * The entries that are shown, and the text that they match: it may be an earlier text than the typed one.
   *
   * @type {Choice[]}
   */
  #choices = [];
  /** @type {string | undefined} */
  #of;
  #at = 0;
  #asking = new AbortController();
  /** @type {number | undefined} */
  #timer;
  #list = h("ul", { role: "listbox", id: "palette-list", "aria-label": "Results" });
  #said = h("p", { class: "visually-hidden", role: "status" });
  #input = h("input", {
    type: "text",
    role: "combobox",
    "aria-label": "Search jobs, spiders, sites, datasets, projects, pages and help",
    "aria-controls": "palette-list",
    "aria-expanded": "true",
    "aria-autocomplete": "list",
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "Jobs, spiders, sites, datasets, projects, help…",
    maxlength: 200,
    oninput: () => this.#soon(),
    onkeydown: (event) => this.#key(event),
  });
  #dialog = h(
    "dialog",
    { class: "palette", "aria-label": "Search or jump to", onclose: () => this.#end() },
    h("div", { class: "palette-field" }, icon("search"), this.#input),
    this.#list,
    this.#said,
  );

  open() {
    const dialog = this.#dialog;
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    document.body.append(dialog);
    dialog.showModal();
    this.#input.focus();
    things();
    this.#ask();
  }

  #end() {
    clearTimeout(this.#timer);
    this.#asking.abort();
    this.#dialog.remove();
  }

  /** @type {(choices: Choice[], text: string) => void} */
  #draw(choices, text) {
    this.#choices = choices;
    this.#of = text;
    this.#at = 0;
    this.#list.replaceChildren(...choices.map((one, place) => row(one, place, () => this.#run(place))));
    this.#said.textContent = choices.length === 1 ? "1 result" : `${choices.length} results`;
    this.#mark();
  }

  #mark() {
    const rows = [...this.#list.children];
    for (const [place, one] of rows.entries()) one.setAttribute("aria-selected", String(place === this.#at));
    const current = rows[this.#at];
    this.#input.setAttribute("aria-activedescendant", current?.id ?? "");
    current?.scrollIntoView({ block: "nearest" });
  }

  /** @type {(place: number) => void} */
  #run(place) {
    const chosen = this.#choices[place];
    if (!chosen) return;
    this.#dialog.close();
    chosen.act();
  }

  async #ask() {
    this.#asking.abort();
    this.#asking = new AbortController();
    const { signal } = this.#asking;
    const text = this.#input.value;
    const choices = await found(text, signal);
    if (!signal.aborted) this.#draw(choices, text);
  }

  #soon() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#ask(), PAUSE);
  }

  async #enter() {
    clearTimeout(this.#timer);
    if (this.#of !== this.#input.value) await this.#ask();
    if (this.#of === this.#input.value) this.#run(this.#at);
  }

  /** @type {(event: KeyboardEvent) => void} */
  #key(event) {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    const count = this.#choices.length;
    if (step && count) this.#at = (this.#at + step + count) % count;
    else if (event.key === "Enter") this.#enter();
    else return;
    event.preventDefault();
    this.#mark();
  }
}

/** @type {(choice: Choice, place: number, run: () => void) => HTMLElement} */
function row({ group, words, more }, place, run) {
  return h(
    "li",
    { role: "option", id: `palette-${place}`, onclick: run },
    h("span", { class: "muted small" }, group),
    h("bdi", {}, shown(words, 120)),
    more ? h("span", { class: "muted small push" }, shown(more, 60)) : null,
  );
}
