// npm install discoverybot-client
import { cancel, connect, followJob, jobItems, startCrawl, waitForJob } from 'discoverybot-client';

const [gateway, site] = process.argv.slice(2) as [string, string];
connect(gateway);
const crawl = { user_id: 'me', spider: 'seo', start_urls: [site], depth: 1 };
const { job_id } = await startCrawl(crawl);
for await (const event of followJob(job_id)) {
  if (event.event === 'log') console.log(event.data.msg);
}
const job = await waitForJob(job_id, { timeout: 60 });
console.log(job.status, job.items_count);
for await (const item of jobItems(job_id)) console.log(item.url);
const other = await startCrawl({ ...crawl, ignore_cache: true });
await cancel(other.job_id);
