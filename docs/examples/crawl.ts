// npm install discoverybot-client
import { cancelJob, connect, createCrawl, followJob, jobItems } from 'discoverybot-client';

const [gateway, site] = process.argv.slice(2) as [string, string];
connect(gateway);
const body = { user_id: 'me', spider: 'seo', start_urls: [site] };
const { data: job } = await createCrawl({ body });
for await (const event of followJob(job.job_id)) {
  if (event.event === 'log') console.log(event.data.msg);
}
for await (const item of jobItems(job.job_id)) console.log(item.url);
const { data: other } = await createCrawl({ body: { ...body, ignore_cache: true } });
await cancelJob({ path: { job_id: other.job_id } });
