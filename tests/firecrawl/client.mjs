// Firecrawl's own JavaScript client at our door. Run by `tests/e2e/test_firecrawl_clients.py`, with and without
// WebSockets, which browsers and Node.js 22 have.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [gateway, key, site, packages] = process.argv.slice(2);
const found = createRequire(`${packages}/x.js`).resolve("firecrawl");
const { Firecrawl } = await import(pathToFileURL(found).href);
const client = new Firecrawl({ apiKey: key, apiUrl: gateway });
const start = `${site}/docs/`;

const page = await client.scrape(`${site}/docs/1`, { formats: ["markdown", "links"] });
assert.ok(page.markdown.startsWith("# Page 1\n"));
assert.equal(page.metadata.sourceURL, `${site}/docs/1`);
await assert.rejects(client.scrape(site, { actions: [{ type: "wait" }] }), { status: 400, message: /actions/ });
await assert.rejects(client.search("x"), { status: 404, code: "NOT_SUPPORTED" });
assert.ok((await client.map(start)).links.some((link) => link.url === `${site}/docs/hidden`));

const job = await client.crawl(start, { limit: 130, pollInterval: 1 });
assert.deepEqual([job.status, job.data.length, job.completed], ["completed", 130, 130]);
const first = await client.getCrawlStatus(job.id, { autoPaginate: false });
assert.equal(first.data.length, 100);
assert.ok(first.next.startsWith("/v2/crawl/"));
assert.deepEqual(await client.getCrawlErrors(job.id), { errors: [], robotsBlocked: [] });

const slow = await client.startCrawl(start, { delay: 1, maxConcurrency: 1 });
assert.ok((await client.getActiveCrawls()).crawls.some((one) => one.id === slow.id));
assert.ok((await client.getQueueStatus()).jobsInQueue > 0);
assert.ok(await client.cancelCrawl(slow.id));
assert.ok((await client.getCreditUsage()).remainingCredits > 0);
assert.ok((await client.getTokenUsage()).remainingTokens > 0);

const urls = [1, 2, 3].map((number) => `${site}/docs/${number}`);
const batch = await client.batchScrape(urls, { options: { formats: ["markdown"] }, pollInterval: 1 });
assert.deepEqual([batch.status, batch.data.map((one) => one.metadata.url).sort()], ["completed", urls]);
assert.deepEqual((await client.getBatchScrapeErrors(batch.id)).errors, []);

const watched = await client.startCrawl(start, { limit: 20 });
const watcher = client.watcher(watched.id, { kind: "crawl", pollInterval: 1, timeout: 60 });
const urlsSeen = new Set();
let outcome;
watcher.on("document", (one) => urlsSeen.add(one.metadata.url));
watcher.on("done", (told) => {
  outcome = told.status;
});
watcher.on("error", (told) => {
  outcome = told.error;
});
await watcher.start();
assert.deepEqual([outcome, urlsSeen.size], ["completed", 20]);
console.log("all passed", typeof globalThis.WebSocket);
