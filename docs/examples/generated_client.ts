// npx @hey-api/openapi-ts --input http://127.0.0.1:8001/openapi.json --output client
import { cancelJob, createCrawl, followJobLog, listJobItems } from './client/sdk.gen.js';
import { client } from './client/client.gen.js';

const [baseUrl, site] = process.argv.slice(2) as [string, string];
client.setConfig({ baseUrl, throwOnError: true });
const body = { user_id: 'me', spider: 'seo', start_urls: [site] };
const { data: job } = await createCrawl({ body, throwOnError: true });
const { stream } = await followJobLog({ path: { job_id: job.job_id } });
for await (const event of stream) {
  if (typeof event === 'object' && 'msg' in event) console.log(event.msg);
}
const { data: page } = await listJobItems({ path: { job_id: job.job_id }, query: { limit: 100 }, throwOnError: true });
for (const item of page.items) console.log(item.url);
const { data: other } = await createCrawl({ body: { ...body, ignore_cache: true }, throwOnError: true });
await cancelJob({ path: { job_id: other.job_id } });
