import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inspect } from 'node:util';
import { deleteVersion, DiscoveryBotError, each, GatewayUnreachableError, getJob, InvalidAnswerError, listJobs, listSpiders, pages, requireGood } from 'discoverybot-client';
import { away, gateway, json, pauses, refused } from './gateway.mjs';

const asked = (request) => `${request.method} ${new URL(request.url).pathname}${new URL(request.url).search}`;

/** What the list at each path is called. */
const LISTS = {
  '/jobs': 'jobs', '/schedules': 'schedules', '/datasets': 'datasets', '/endpoints': 'endpoints', '/errors': 'errors', '/alerts': 'alerts', '/alerts/rules': 'rules',
  '/targets': 'targets', '/dead-letters': 'dead_letters', '/sites': 'sites', '/spiders': 'spiders', '/projects': 'projects', '/nodes': 'nodes', '/keys': 'keys',
};

test('a client shows what it is for, and nothing of what makes its requests', async () => {
  const { client } = gateway([json({})], { key: 'db_secret' });
  const names = ['alertRules', 'alerts', 'datasets', 'deadLetters', 'endpoints', 'errors', 'jobs', 'keys', 'nodes', 'platform', 'projects', 'schedules', 'sites', 'spiders', 'targets'];
  assert.deepEqual(Object.getOwnPropertyNames(client).sort(), names);
  assert.equal(inspect(client), 'DiscoveryBot {}');
  await assert.rejects(async () => getJob({ client: {}, path: { job_id: '1' } }), { name: 'TypeError', message: 'client: a DiscoveryBot has to be given' });
});

test('a list is looped over, page by page', async () => {
  const found = gateway([json({ jobs: [{ job_id: '1' }], next: 'a' }), json({ jobs: [{ job_id: '2' }], next: null })]);
  const ids = [];
  for await (const job of found.client.jobs.list({ status: ['error'] })) ids.push(job.job_id);
  assert.deepEqual(ids, ['1', '2']);
  assert.deepEqual(found.asked.map(asked), ['GET /jobs?status=error&limit=200', 'GET /jobs?status=error&limit=200&after=a']);
});

test('every list is a loop', async () => {
  const { client, asked: requests } = gateway([(request) => json({ [LISTS[new URL(request.url).pathname]]: [{ n: 1 }, { n: 2 }], projects: [{ n: 1 }, { n: 2 }], missing: [], next: null })()]);
  const lists = Object.getOwnPropertyNames(client).map((name) => client[name]).filter(({ list }) => list);
  assert.equal(lists.length, Object.keys(LISTS).length);
  for (const methods of lists) {
    const found = [];
    for await (const { n } of methods.list()) found.push(n);
    for await (const { n } of methods.list({ limit: 1 })) found.push(n);
    assert.deepEqual(found, [1, 2, 1]);
  }
  // these have no pages
  assert.deepEqual(requests.map(asked).filter((one) => one.includes('keys') || one.includes('nodes')), ['GET /nodes', 'GET /nodes', 'GET /keys', 'GET /keys']);
});

test('a thing is named by its id, and a query or a body follows', async () => {
  const { client, asked: requests } = gateway([json({ job_id: '1', schedule_id: '2', kind: 'job', status: 'running', state: 'active', keys: [] })]);
  await client.jobs.get('a/b', { wait: 3 });
  await client.jobs.pause('1');
  await client.schedules.create({ spider: 'seo', interval: '@daily' });
  await client.schedules.update('2', { interval: '@hourly' });
  await client.keys.list().next();
  assert.deepEqual(requests.map(asked), ['GET /jobs/a%2Fb?wait=3', 'POST /jobs/1/pause', 'POST /schedules', 'PATCH /schedules/2', 'GET /keys']);
  assert.deepEqual(await requests[3].json(), { interval: '@hourly' });
});

test('a limit is that of all rows, not of a page', async () => {
  const page = json({ jobs: [{ job_id: '1' }, { job_id: '2' }], next: 'a' });
  for (const [given, sent] of [[{ limit: 3 }, ['?limit=3', '?limit=3&after=a']], [{ limit: 2 }, ['?limit=2']], [{ limit: 3, pageSize: 2 }, ['?limit=2', '?limit=2&after=a']], [{ limit: 0 }, []]]) {
    const { client, asked: requests } = gateway([page, json({ jobs: [{ job_id: '3' }, { job_id: '4' }], next: 'b' })]);
    const found = [];
    for await (const job of client.jobs.list(given)) found.push(job);
    assert.equal(found.length, given.limit);
    assert.deepEqual(requests.map((request) => new URL(request.url).search), sent);
  }
});

test('the user of a client is named wherever a call takes one', async () => {
  const { client, asked: requests } = gateway([json({ kind: 'job', job_id: '1', status: 'running', name: 'p', action: 'cancel', jobs: [], next: null })], { userId: 'ada' });
  await client.datasets.put('p', { key: ['url'] });
  await client.startCrawl({ spider: 'seo' });
  await client.startCrawl({ spider: 'seo', user_id: 'bob' });
  await client.jobs.act({ action: 'cancel', filter: { status: ['queued'] } });
  await client.jobs.list().next();
  await client.jobs.get('1');
  assert.deepEqual(requests.map(asked), ['PUT /datasets/p?user_id=ada', 'POST /crawl', 'POST /crawl', 'POST /jobs/bulk', 'GET /jobs?user_id=ada&limit=200', 'GET /jobs/1']);
  const bodies = await Promise.all(requests.slice(0, 4).map((request) => request.json()));
  assert.deepEqual(bodies, [
    { key: ['url'] },
    { user_id: 'ada', spider: 'seo' },
    { user_id: 'bob', spider: 'seo' },
    { action: 'cancel', filter: { user_id: 'ada', status: ['queued'] } },
  ]);
});

test('an answer that lacks what it is about is an error of this package', async () => {
  const calls = [
    (client) => client.jobs.get('1'),
    (client) => client.jobs.list().next(),
    (client) => client.jobs.items('1').next(),
    (client) => client.startCrawl({ spider: 'seo' }),
    (client) => client.crawl({ spider: 'seo' }),
    (client) => client.waitForJob('1'),
    (client) => client.followChanges('p').next(),
    (client) => client.datasets.run('p', '1'),
    (client) => client.deploy(new Blob(['egg']), { project: 'shop', version: '1' }),
    (client) => each(listJobs, { client }).next(),
    (client) => pages(listSpiders, { client }).next(),
  ];
  const empty = () => new Response('', { headers: { 'Content-Length': '0' } });
  const wrong = { jobs: null, items: {}, spiders: 'seo', next: null };
  for (const answer of [json([1]), json(null), json('job'), json({}), json({ status: 'ok' }), json(wrong), empty]) {
    for (const call of calls) {
      const { client, asked: requests } = gateway([answer]);
      await assert.rejects(call(client), (error) => error instanceof InvalidAnswerError && / is not a gateway's: it (is|has) no /.test(error.message));
      assert.equal(requests.length, 1);
    }
  }
});

test('an answer may have less than the API says, and more', async () => {
  const { client } = gateway([json({ job_id: '1', status: 'running', kind: 'job', later: 1 })]);
  assert.deepEqual(await client.jobs.get('1'), { job_id: '1', status: 'running', kind: 'job', later: 1 });
  await gateway([() => new Response(null, { status: 204 })]).client.jobs.delete('1');
});

test('rules, targets and runs have methods, too', async () => {
  const { client, asked: requests } = gateway([json({ job_id: 'r1', state: 'published', rule_id: '1', id: '1', project: 'shop', version: '1' })], { userId: 'ada' });
  await client.datasets.acceptRun('p', 'r1', { new_normal: true });
  await client.datasets.rejectRun('p', 'r1');
  await client.alertRules.update('1', { name: 'new' });
  await client.targets.get('1');
  assert.deepEqual(requests.map(asked), [
    'POST /datasets/p/runs/r1/accept?user_id=ada&new_normal=true',
    'POST /datasets/p/runs/r1/reject?user_id=ada',
    'PATCH /alerts/rules/1?user_id=ada',
    'GET /targets/1',
  ]);
});

test('the id of a schedule is none of a job', async () => {
  const schedule = { kind: 'schedule', job_id: '2', status: 'active' };
  for (const call of [(client) => client.jobs.get('2'), (client) => client.waitForJob('2'), (client) => client.waitForRun('p', '2')]) {
    const { client, asked: requests } = gateway([json(schedule)]);
    await assert.rejects(call(client), { name: 'NotAJobError', message: '2 is a schedule, not a job: client.schedules.get has it' });
    assert.equal(requests.length, 1);
  }
});

test('an egg is deployed, with what it needs', async () => {
  const installing = json({ project: 'shop', version: '1', dependencies_url: '/x', nodes: [] }, 202);
  const nodes = (state) => json({ project: 'shop', version: '1', nodes: [{ node: 'n1', state: 'ready' }, { node: 'n2', state }] });
  const done = { project: 'shop', version: '1', spiders: 1, nodes: [] };
  const { client, asked: requests } = gateway([away, installing, nodes('building'), nodes('ready'), installing, refused(404, 'version_not_found'), json(done)]);
  assert.deepEqual(await client.deploy(new Blob(['egg']), { project: 'shop', version: '1', requirements: 'scrapy==2.13' }), done);
  const [sent, looked] = ['POST /projects/shop/versions?version=1&wait=50', 'GET /projects/shop/versions/1/dependencies'];
  assert.deepEqual(requests.map(asked), [sent, sent, looked, looked, sent, looked, sent]);
  for (const request of requests.filter(({ method }) => method === 'POST')) {
    const form = await request.formData();
    assert.equal(await form.get('egg').text(), 'egg');
    assert.equal(form.get('requirements'), 'scrapy==2.13');
  }
  const alone = gateway([json(done)]);
  await alone.client.deploy(new Blob(['egg']), { project: 'shop', version: '1' });
  assert.deepEqual([...(await alone.asked[0].formData()).keys()], ['egg']);
});

test('a crawl is waited for, and its failure is an error if it has to be good', async () => {
  const job = { kind: 'job', job_id: '1', status: 'finished' };
  const { client, asked: requests } = gateway([json({ job_id: '1' }, 202), json({ ...job, status: 'running' }), json(job)]);
  assert.deepEqual(await client.crawl({ spider: 'seo' }), job);
  assert.deepEqual(requests.map(asked), ['POST /crawl', 'GET /jobs/1?wait=0', 'GET /jobs/1?wait=30']);
  const failed = gateway([json({ job_id: '1' }, 202), json({ ...job, status: 'error', message: 'it broke' })]);
  const ended = await failed.client.crawl({ spider: 'seo' });
  assert.equal(requireGood(job), job);
  assert.throws(() => requireGood(ended), { name: 'CrawlFailedError', message: 'job 1: error: it broke', job: { ...job, status: 'error', message: 'it broke' } });
});

test('a crawl that begins later or again and again is not waited for, and not asked for', async () => {
  const { client, asked: requests } = gateway([json({ job_id: '1' }, 202)]);
  await assert.rejects(client.crawl({ spider: 'seo', interval: '@daily' }), { name: 'TypeError', message: /^interval: / });
  await assert.rejects(client.crawl({ spider: 'seo', schedule_at: '2027-06-01T00:00:00Z' }), { name: 'TypeError', message: /^schedule_at: / });
  assert.equal(requests.length, 0);
});

test('changes are followed from a cursor on', async () => {
  const { client, asked: requests } = gateway([json({ changes: [{ seq: 8 }], next: 8, pending: 0 }), away, json({ changes: [], next: 9, pending: 0 }), json({ changes: [{ seq: 10 }], next: 10, pending: 0 }), away]);
  const found = [];
  for await (const { seq } of client.followChanges('p', { since: 7 })) {
    found.push(seq);
    if (seq === 10) break;
  }
  assert.deepEqual(found, [8, 10]);
  assert.deepEqual(requests.map((request) => new URL(request.url).searchParams.get('since')), ['7', '8', '8', '9']);
  const gone = gateway([away]).client.followChanges('p', { timeout: 0.05 });
  await assert.rejects(gone.next(), DiscoveryBotError);
});

test('changes that come again are an error', async () => {
  const { client, asked: requests } = gateway([json({ changes: [{ seq: 5 }], next: 5, pending: 0 })]);
  const found = [];
  await assert.rejects(async () => {
    for await (const { seq } of client.followChanges('p')) found.push(seq);
  }, { name: 'InvalidAnswerError', message: 'the changes after 5 lead to themselves' });
  assert.deepEqual([found, requests.length], [[5], 2]);
});

test('changes are waited for as long as patience says, and a gateway that never answered for a minute', async (t) => {
  const page = json({ changes: [{ seq: 1 }], next: 1, pending: 0 });
  const follow = async (answers, options) => {
    const { client, asked: requests } = gateway(answers);
    t.mock.method(performance, 'now', () => 2000 * requests.length);
    const changes = client.followChanges('p', options);
    await assert.rejects(async () => {
      for await (const { seq } of changes) if (seq === 2) throw new Error('back');
    }, answers.length > 9 ? { message: 'back' } : GatewayUnreachableError);
    t.mock.restoreAll();
    return requests.length;
  };
  assert.equal(await follow([away]), 31);
  assert.equal(await follow([page, away], { patience: 4 }), 4);
  assert.equal(await follow([away], { patience: 0 }), 1);
  assert.equal(await follow([page, ...Array(50).fill(away), json({ changes: [{ seq: 2 }], next: 2, pending: 0 })]), 52);
});

test('without patience a gateway still has the time that it may wait for changes', async () => {
  const { client } = gateway([json({ changes: [{ seq: 1 }], next: 1, pending: 0 })]);
  await client.followChanges('p', { patience: 0 }).next();
  // it answers after 30 seconds if nothing has changed
  assert.deepEqual(pauses.filter((time) => Math.round(time) <= 30_000), []);
});

test('its limits come last', async () => {
  const { client, asked: requests } = gateway([away]);
  await assert.rejects(client.jobs.get('1', {}, { retries: 1 }), GatewayUnreachableError);
  await assert.rejects(client.schedules.get('1', { retries: 1 }), GatewayUnreachableError);
  assert.equal(requests.length, 4);
});

test('what is no id or name is sent nowhere', async () => {
  const { client, asked: requests } = gateway([json({})]);
  for (const id of ['', '.', '..', undefined, null, {}, ['a']]) {
    const calls = [
      () => client.jobs.delete(id),
      () => client.jobs.items(id).next(),
      () => client.datasets.acceptRun('p', id),
      () => client.waitForJob(id),
      () => client.followJob(id).next(),
      () => client.followChanges(id).next(),
      () => client.exportItems(id, 'csv'),
      () => client.cancel(id),
      () => deleteVersion({ client, path: { project: 'shop', version: id } }),
    ];
    for (const call of calls) await assert.rejects(call, { name: 'TypeError', message: /is no id or name/ });
  }
  await assert.rejects(deleteVersion({ client }), { name: 'TypeError', message: 'project: undefined is no id or name' });
  assert.equal(requests.length, 0);
  await client.jobs.delete('...');
  await client.jobs.delete('../a');
  assert.deepEqual(requests.map(asked), ['DELETE /jobs/...', 'DELETE /jobs/..%2Fa']);
});
