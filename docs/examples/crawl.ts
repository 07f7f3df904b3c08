// npm install discoverybot-client
import { DiscoveryBot } from 'discoverybot-client';

const [gateway, site] = process.argv.slice(2) as [string, string];
const client = new DiscoveryBot(gateway, { userId: 'me' });
const crawl = { spider: 'seo', start_urls: [site], depth: 1 };
const { job_id } = await client.startCrawl(crawl);
for await (const event of client.followJob(job_id)) {
  if (event.event === 'log') console.log(event.data.msg);
}
const job = await client.waitForJob(job_id, { timeout: 60 });
console.log(job.status, job.items_count);
for await (const item of client.jobItems(job_id)) console.log(item.url);
const other = await client.startCrawl({ ...crawl, ignore_cache: true });
await client.cancel(other.job_id);
