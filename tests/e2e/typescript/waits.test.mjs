import assert from 'node:assert/strict';
import { test } from 'node:test';
import { each, listDatasetChanges, TimeoutError, WaitTimeoutError } from 'discoverybot-client';
import { events, gateway, json, pauses, refused } from './gateway.mjs';

const RUNNING = { kind: 'job', job_id: '1', status: 'running' };
const NOTHING = { changes: [], next: 3, pending: 0 };
/** A clock for which each request takes a tenth of a second. */
const hasten = (t, asked) => t.mock.method(performance, 'now', () => 100 * asked.length);

const all = async (rows) => {
  for await (const row of rows) assert.ok(row);
};

test('what is answered at once and says nothing new is asked for with pauses that double', async () => {
  const finished = json({ ...RUNNING, status: 'finished' });
  const wait = gateway([json({ ...RUNNING, status: 'pending' }), ...Array(9).fill(json(RUNNING)), finished]);
  await wait.client.waitForJob('1');
  const waited = [...pauses];
  const follow = gateway([json({ changes: [{ seq: 3 }], next: 3 }), ...Array(8).fill(json(NOTHING)), json({ changes: [{ seq: 4 }], next: 4 })]);
  for await (const { seq } of follow.client.followChanges('p')) if (seq === 4) break;
  for (const made of [waited, [...pauses]]) {
    // seconds of silence are limits, and no pauses
    const between = made.filter((pause) => ![10_000, 40_000].includes(pause));
    assert.equal(between.length, 8);
    for (const [number, pause] of between.entries()) {
      const most = 500 * 2 ** number;
      assert.ok(pause >= Math.min(5000, most / 2) && pause <= Math.min(5000, most), String(between));
    }
  }
});

test('what takes its time is asked for again at once', async (t) => {
  const { client, asked } = gateway([...Array(9).fill(json(RUNNING)), json({ ...RUNNING, status: 'finished' })]);
  t.mock.method(performance, 'now', () => 30_000 * asked.length);
  await client.waitForJob('1');
  assert.deepEqual(pauses.filter((pause) => ![10_000, 40_000].includes(pause)), []);
});

test('the time limit of a loop holds though all is answered at once', async (t) => {
  const late = gateway([json(RUNNING)]);
  hasten(t, late.asked);
  await assert.rejects(late.client.waitForJob('1', { timeout: 3 }), (error) => error instanceof WaitTimeoutError && error.message === 'job 1 has not ended within 3 seconds');
  assert.ok(late.asked.length <= 31);
  t.mock.restoreAll();
  const message = 'it was not done within 3 seconds';
  const changes = gateway([json(NOTHING)]);
  hasten(t, changes.asked);
  await assert.rejects(all(changes.client.followChanges('p', { timeout: 3 })), (error) => error instanceof TimeoutError && error.message === message);
  t.mock.restoreAll();
  let next = 0;
  const pages = gateway([() => json({ changes: [{ seq: 1 }], next: ++next, pending: 1 })()]);
  hasten(t, pages.asked);
  await assert.rejects(all(each(listDatasetChanges, { client: pages.client, path: { name: 'p' }, timeout: 3 })), { message });
  t.mock.restoreAll();
  const log = gateway([events('id: 1\ndata: {"msg": "one"}\n\n'.repeat(9))]);
  hasten(t, log.asked);
  await assert.rejects(all(log.client.followJob('1', { timeout: 3 })), { message });
});

test('a crawl that is late says what it was given', async () => {
  const { client } = gateway([json({ job_id: '1' }, 202), json(RUNNING)]);
  const message = /^job 1 has not ended within 0\.05 seconds$/;
  await assert.rejects(client.crawl({ spider: 'seo' }, { timeout: 0.05 }), { name: 'WaitTimeoutError', message });
});

test('the run of a dataset is waited for, after the job', async () => {
  const job = { ...RUNNING, status: 'finished', spec: { dataset: 'p' } };
  const run = { job_id: '1', state: 'published' };
  const { client, asked } = gateway([json(RUNNING), json(job), refused(404, 'run_not_found'), refused(503, 'unavailable'), json({ ...run, state: 'planned' }), json(run)], { userId: 'ada' });
  assert.deepEqual(await client.waitForRun('p', '1', { timeout: 200 }), run);
  const calls = asked.map(({ url }) => url.slice('http://gateway'.length));
  assert.deepEqual(calls, ['/jobs/1?wait=0', '/jobs/1?wait=30', ...Array(4).fill('/datasets/p/runs/1?user_id=ada')]);
});

test('a run that does not come is an error, and so is one of another dataset', async (t) => {
  const job = { ...RUNNING, status: 'error', spec: { dataset: { name: 'p' } } };
  const late = gateway([json(job), refused(404, 'run_not_found')]);
  hasten(t, late.asked);
  await assert.rejects(late.client.waitForRun('p', '1', { timeout: 3 }), { name: 'WaitTimeoutError', message: 'dataset p has no run of job 1 after 3 seconds', job });
  t.mock.restoreAll();
  for (const [given, told] of [['q', 'p'], [undefined, 'no dataset']]) {
    const { client, asked } = gateway([json({ ...job, spec: { dataset: given && 'p' } })]);
    await assert.rejects(client.waitForRun('q', '1', { timeout: 200 }), { name: 'TypeError', message: `the items of job 1 go into ${told}, not into q` });
    assert.equal(asked.length, 1);
  }
  const refusal = gateway([json(job), refused(403, 'forbidden')]);
  await assert.rejects(refusal.client.waitForRun('p', '1', { timeout: 200 }), { code: 'forbidden' });
});

test('a stream is opened anew after a pause, whatever it asks for', async () => {
  const end = events('event: end\nid: 3\ndata: {"status": "finished"}\n\n');
  const { client } = gateway([events('retry: 0\nid: 1\ndata: {}\n\n'), events('retry: soon\n\n'), end]);
  await all(client.followJob('1'));
  assert.deepEqual(pauses.filter((pause) => pause < 45_000), [250, 250]);
});
