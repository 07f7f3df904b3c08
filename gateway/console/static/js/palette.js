// Ctrl-K: go to a page, a job, a spider or a site, or do what the page offers, by typing a few letters of it.
import { api } from "./api.js";
import { h, icon, shown } from "./text.js";

const MOST = 8;
const PAUSE = 150;
const JOB_ID = /^[0-9a-f]{32}$/;

let known;

/** Spiders and sites are asked for once per page. */
function things() {
  known ??= Promise.all([
    api("GET /spiders", { query: { limit: 1000 } })
      .then((answer) => answer.spiders.filter((one) => one.latest))
      .catch(() => []),
    api("GET /jobs/sites")
      .then((answer) => answer.sites)
      .catch(() => []),
  ]);
  return known;
}

const user = () => document.body.dataset.user;

function link(path, query = {}) {
  const pairs = new URLSearchParams({ ...query, ...(user() ? { user_id: user() } : {}) });
  return pairs.size ? `${path}?${pairs}` : path;
}

/** What the page itself offers: its places, and the buttons beside its heading. */
function offered() {
  const places = [...document.querySelectorAll("#menu a")]
    .slice(1)
    .map((one) => choice("Go to", one.textContent.trim(), () => one.click(), one.dataset.key));
  const buttons = [
    ...document.querySelectorAll("main .head .actions :is(a, button), main [data-offered], #menu .foot button"),
  ];
  const acts = buttons
    .filter((one) => !one.disabled)
    .map((one) => choice("Do", one.textContent.trim(), () => one.click(), one.dataset.key));
  return [...acts, ...places];
}

const choice = (group, words, act, more = "") => ({ group, words, act, more });
const goTo = (address) => () => location.assign(address);

async function found(text, signal) {
  const wanted = text.trim().toLowerCase();
  const matches = (one) => wanted.split(/\s+/).every((part) => one.words.toLowerCase().includes(part));
  if (!wanted) return offered();
  const [[spiders, sites], schedules, jobs] = await Promise.all([
    things(),
    schedulesWith(text.trim(), signal),
    jobsWith(text.trim(), signal),
  ]);
  const ofSpiders = spiders.map((one) =>
    choice(
      "Crawl with",
      one.name,
      goTo(link("/console/crawl", { project: one.project, spider: one.name })),
      one.project,
    ),
  );
  const pagesOfSites = sites.map((one) =>
    choice("Site", one.site_name, goTo(link(`/console/sites/${encodeURIComponent(one.site_name)}`))),
  );
  const ofSites = sites.map((one) =>
    choice("Runs of the site", one.site_name, goTo(link("/console/jobs", { site: one.site_name }))),
  );
  return [
    ...offered().filter(matches),
    ...ofSpiders.filter(matches).slice(0, MOST),
    ...pagesOfSites.filter(matches).slice(0, MOST),
    ...ofSites.filter(matches).slice(0, MOST),
    ...schedules,
    ...jobs,
  ];
}

async function schedulesWith(text, signal) {
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

async function jobsWith(text, signal) {
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
  const all = choice("Search", `all jobs for “${shown(text, 60)}”`, goTo(link("/console/jobs", { q: text })));
  return [...jobs, all];
}

export function open() {
  const list = h("ul", { role: "listbox", id: "palette-list", "aria-label": "Found" });
  const said = h("p", { class: "visually-hidden", role: "status" });
  const input = h("input", {
    type: "text",
    role: "combobox",
    "aria-label": "Search jobs, spiders, sites and pages",
    "aria-controls": "palette-list",
    "aria-expanded": "true",
    "aria-autocomplete": "list",
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "Jobs, spiders, sites, pages, actions",
    maxlength: 200,
  });
  const dialog = h(
    "dialog",
    { class: "palette", "aria-label": "Search, or go to" },
    h("div", { class: "palette-field" }, icon("search"), input),
    list,
    said,
  );
  const state = { choices: [], of: undefined, at: 0, asking: undefined, timer: undefined };

  const draw = (choices, text) => {
    state.choices = choices;
    state.of = text;
    state.at = 0;
    list.replaceChildren(...choices.map((one, place) => row(one, place, () => run(place))));
    said.textContent = choices.length === 1 ? "1 found" : `${choices.length} found`;
    mark();
  };
  const mark = () => {
    [...list.children].forEach((one, place) => one.setAttribute("aria-selected", String(place === state.at)));
    const current = list.children[state.at];
    input.setAttribute("aria-activedescendant", current?.id ?? "");
    current?.scrollIntoView({ block: "nearest" });
  };
  const run = (place) => {
    const chosen = state.choices[place];
    if (!chosen) return;
    dialog.close();
    chosen.act();
  };
  const ask = async () => {
    state.asking?.abort();
    const { signal } = (state.asking = new AbortController());
    const text = input.value;
    const choices = await found(text, signal);
    if (!signal.aborted) draw(choices, text);
  };
  /** What is shown may still be of the text before. */
  const enter = async () => {
    clearTimeout(state.timer);
    if (state.of !== input.value) await ask();
    if (state.of === input.value) run(state.at);
  };
  input.addEventListener("input", () => {
    clearTimeout(state.timer);
    state.timer = setTimeout(ask, PAUSE);
  });
  input.addEventListener("keydown", (event) => {
    const count = state.choices.length;
    const steps = { ArrowDown: 1, ArrowUp: -1 };
    if (event.key in steps && count) state.at = (state.at + steps[event.key] + count) % count;
    else if (event.key === "Enter") enter();
    else return;
    event.preventDefault();
    mark();
  });
  dialog.addEventListener("close", () => {
    clearTimeout(state.timer);
    state.asking?.abort();
    dialog.remove();
  });
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);
  dialog.showModal();
  input.focus();
  things();
  ask();
}

function row({ group, words, more }, place, run) {
  return h(
    "li",
    { role: "option", id: `palette-${place}`, onclick: run },
    h("span", { class: "muted small" }, group),
    h("bdi", {}, shown(words, 120)),
    more ? h("span", { class: "muted small push" }, shown(more, 60)) : null,
  );
}
