// What people come to do, for the palette: what it is called here, the page where it is done, and how people say it.

/** @typedef {{ words: string, path: string, said: string }} Act */

/** An act is offered to whom the menu shows its page. @type {Act[]} */
export const ACTS = [
  {
    words: "Stop all crawls of a site or host…",
    path: "/console/sites",
    said: "stop crawling a site, cancel everything that crawls a host, block a website",
  },
  {
    words: "Let a colleague read…",
    path: "/console/keys#colleague",
    said: "read only access for a colleague, invite somebody, share results, permission to view",
  },
  { words: "Create a key…", path: "/console/keys", said: "new API key, token, password, access for a program" },
  { words: "Start a crawl…", path: "/console/crawl", said: "run a spider now, scrape a page, new job" },
  {
    words: "Run a crawl every day…",
    path: "/console/crawl?run=daily",
    said: "schedule, recurring, daily, hourly, every morning, automatically, cron",
  },
  {
    words: "Compare today's run with yesterday's…",
    path: "/console/schedules",
    said: "compare today with yesterday, what changed since the day before, differences of two runs",
  },
  {
    words: "Download items as a spreadsheet…",
    path: "/console/jobs?status=finished&status=partial",
    said: "export prices to Excel, CSV, download the results of a crawl as a table",
  },
  {
    words: "See the errors of the last night",
    path: "/console/errors?seen=night",
    said: "what broke last night, first error, failures since yesterday",
  },
  {
    words: "See which fields lost values",
    path: "/",
    said: "which field is missing, price is empty, values gone, null, selector broken",
  },
  {
    words: "Get an alert when crawls fail…",
    path: "/console/alerts",
    said: "notification by Slack or mail, tell me, notify the team",
  },
  { words: "Deploy a project…", path: "/console/projects", said: "upload an egg, a new version of my spiders" },
];
/** What a rollback is called by others. */
export const ROLLBACK_SAID = "go back to the old version, undo a deploy, previous release, revert, restore";
