import assert from 'node:assert/strict';
import { test } from 'node:test';
import { downloadDatasetChanges, downloadDatasetItems, downloadJobItems, downloadJobLog, downloadJobRequests, each, followJobs, GatewayUnreachableError, getJobFile, getJobLogLines, InvalidAnswerError, listDatasetChanges, listJobs, listSpiders, pages, TimeoutError } from 'discoverybot-client';
import { away, begun, events, gateway, json, refused } from './gateway.mjs';

const all = async (rows) => {
  const found = [];
  for await (const row of rows) found.push(row);
  return found;
};
const queries = (asked) => asked.map((request) => new URL(request.url).search);

test('each row of a list comes, page by page', async () => {
  const { client, asked } = gateway([json({ jobs: [{ job_id: '1' }], next: 'a' }), away, json({ jobs: [], next: 'b' }), json({ jobs: [{ job_id: '2' }], next: null })]);
  const jobs = await all(each(listJobs, { client, query: { limit: 1 } }));
  assert.deepEqual(jobs, [{ job_id: '1' }, { job_id: '2' }]);
  assert.deepEqual(queries(asked), ['?limit=1', '?limit=1&after=a', '?limit=1&after=a', '?limit=1&after=b']);
});

test('pages of several arrays come whole', async () => {
  const { client } = gateway([json({ spiders: [{ name: 'seo' }], projects: [], next: null })]);
  assert.deepEqual(await all(pages(listSpiders, { client })), [{ spiders: [{ name: 'seo' }], projects: [], next: null }]);
});

test('changes end where there are no more of them', async () => {
  const { client, asked } = gateway([json({ changes: [{ seq: 1 }], next: 1, pending: 1, last_seq: 2 }), json({ changes: [{ seq: 2 }], next: 2, pending: 0, last_seq: 2 })]);
  assert.deepEqual(await all(each(listDatasetChanges, { client, path: { name: 'prices' } })), [{ seq: 1 }, { seq: 2 }]);
  assert.deepEqual(queries(asked), ['', '?since=1']);
});

test('lines of a log go on with `from`', async () => {
  const { client, asked } = gateway([json({ run: '1', lines: [{ id: '1-1' }], next: '1-2' }), json({ run: '1', lines: [], next: null })]);
  await all(each(getJobLogLines, { client, path: { job_id: '1' } }));
  assert.deepEqual(queries(asked), ['', '?from=1-2']);
});

test('a loop that is left asks for no more, and one with a deadline ends', async () => {
  const { client, asked } = gateway([(request) => json({ items: [{ n: 1 }, { n: 2 }], next: `${new URL(request.url).searchParams.get('after')}5` })()]);
  for await (const item of client.jobItems('1', { fields: 'n' })) if (item.n === 2) break;
  assert.deepEqual(queries(asked), ['?fields=n&limit=1000']);
  await assert.rejects(all(client.jobItems('1', { timeout: 0.05 })), TimeoutError);
});

test('a page that leads to itself is an error, and so is what is no page', async () => {
  const { client, asked } = gateway([json({ jobs: [{ job_id: '1' }], next: 'a' })]);
  await assert.rejects(all(client.jobs.list()), InvalidAnswerError);
  assert.equal(asked.length, 2);
  await assert.rejects(all(gateway([json([1])]).client.jobs.list()), InvalidAnswerError);
});

test('items are read as a file, byte by byte', async () => {
  const { client, asked } = gateway([begun('url\nhttp://one\n', { type: 'text/csv', breaks: false })]);
  const file = await client.exportItems('1', 'csv', { fields: 'url' });
  const reader = file.getReader();
  assert.equal(new TextDecoder().decode((await reader.read()).value), 'url\nhttp://one\n');
  await reader.cancel();
  assert.deepEqual(queries(asked), ['?fields=url&format=csv']);
});

test('all that is saved as a file has a method', async () => {
  const { client, asked } = gateway([() => new Response('a\n1\n', { headers: { 'Content-Type': 'text/csv' } })], { userId: 'ada' });
  for (const file of [
    client.jobs.exportItems('1', 'csv', { fields: 'a' }),
    client.jobs.exportRequests('1', 'csv', { failed: true }),
    client.jobs.exportLog('1', 'text', { level: 'ERROR' }),
    client.jobs.readFile('1', 'a/b.csv', { attempt: 2 }),
    client.schedules.exportItems('2', 'csv', { timeout: 100 }),
    client.datasets.exportItems('p', 'csv', { bom: true, retries: 0 }),
    client.datasets.exportChanges('p', 'csv', { since: 3 }),
  ]) assert.equal(await new Response(await file).text(), 'a\n1\n');
  assert.deepEqual(asked.map(({ url }) => url.slice('http://gateway'.length)), [
    '/jobs/1/items/download?fields=a&format=csv',
    '/jobs/1/requests/download?failed=true&format=csv',
    '/jobs/1/logs/download?level=ERROR&format=text',
    '/jobs/1/files/a%2Fb.csv?attempt=2',
    '/schedules/2/items/download?format=csv',
    '/datasets/p/items/download?user_id=ada&bom=true&format=csv',
    '/datasets/p/changes/download?user_id=ada&since=3&format=csv',
  ]);
});

test('a file is what its function says, whatever is in it', async () => {
  const path = { name: 'p', job_id: '1' };
  for (const type of ['text/csv', 'application/json', 'application/x-ndjson', 'text/html; charset=utf-8']) {
    const headers = { 'Content-Type': type, 'Content-Disposition': 'attachment' };
    const { client } = gateway([() => new Response('{"n": 1}', { headers })]);
    for (const download of [downloadDatasetItems, downloadDatasetChanges, downloadJobItems, downloadJobRequests, getJobFile]) {
      const file = await download({ client, path });
      assert.ok(file instanceof Blob, type);
      assert.equal(await file.text(), '{"n": 1}');
    }
    assert.equal(await downloadJobLog({ client, path }), '{"n": 1}');
  }
});

test('a log goes on after its last line, and ends', async () => {
  const { client, asked } = gateway([events('retry: 20\n\nevent: log\nid: 1-1\ndata: {"msg": "one"}\n\n'), away, events('event: end\nid: 1-2\ndata: {"status": "finished"}\n\n')]);
  assert.deepEqual(await all(client.followJob('1', { after: '1-0' })), [
    { event: 'log', id: '1-1', data: { msg: 'one' } },
    { event: 'dropped', id: '1-1', data: undefined },
    { event: 'dropped', id: '1-1', data: undefined },
    { event: 'end', id: '1-2', data: { status: 'finished' } },
  ]);
  assert.deepEqual(asked.map((request) => request.headers.get('Last-Event-ID')), ['1-0', '1-1', '1-1']);
});

test('a log that is refused, or takes too long, is an error', async () => {
  const { client, asked } = gateway([refused(404, 'job_not_found')]);
  await assert.rejects(all(client.followJob('1')), { code: 'job_not_found' });
  assert.equal(asked.length, 1);
  const silent = gateway([begun('event: log\n', { breaks: false, type: 'text/event-stream' })]);
  await assert.rejects(all(silent.client.followJob('1', { timeout: 20 })), TimeoutError);
});

test('a gateway that never was there is given up, and one that was is waited for', async (t) => {
  const silent = gateway([away]);
  t.mock.method(performance, 'now', () => 2000 * silent.asked.length);
  await assert.rejects(all(silent.client.followJob('1')), GatewayUnreachableError);
  assert.equal(silent.asked.length, 31);
  t.mock.restoreAll();
  const end = events('event: end\nid: 1-2\ndata: {"status": "finished"}\n\n');
  const back = gateway([events('event: log\nid: 1-1\ndata: {}\n\n'), ...Array(100).fill(away), end]);
  t.mock.method(performance, 'now', () => 2000 * back.asked.length);
  assert.equal((await all(back.client.followJob('1'))).at(-1).event, 'end');
});

test('what is no stream of events is an error at once', async () => {
  const message = 'the answer is application/json and no stream of events: it does not come from the gateway at http://gateway';
  const { client, asked } = gateway([json({ status: 'ok' })]);
  await assert.rejects(client.followJob('1').next(), { name: 'NoGatewayError', status: 200, message });
  const later = gateway([events('event: log\nid: 1-1\ndata: {}\n\n'), () => new Response('hello')]);
  await assert.rejects(all(later.client.followJob('1')), { name: 'NoGatewayError', message: /^the answer is text\/plain/ });
  assert.deepEqual([asked.length, later.asked.length], [1, 2]);
});

test('data of an event that is no JSON is an error of this package', async () => {
  const { client } = gateway([events('event: log\nid: 1-1\ndata: {"msg"\n\n')]);
  await assert.rejects(all(client.followJob('1')), InvalidAnswerError);
});

test('generated streams go on, too', async () => {
  const { client, asked } = gateway([events('event: snapshot\nid: 7\ndata: {"jobs": []}\n\n'), refused(403, 'forbidden')]);
  const { stream } = await followJobs({ client, query: { job_id: ['1', '2'] } });
  const found = [];
  await assert.rejects(async () => {
    for await (const data of stream) found.push(data);
  }, { code: 'forbidden' });
  assert.deepEqual(found, [{ jobs: [] }]);
  assert.deepEqual(queries(asked), ['?job_id=1&job_id=2', '?job_id=1&job_id=2']);
});
