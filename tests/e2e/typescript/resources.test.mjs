import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GatewayUnreachableError } from 'discoverybot-client';
import { away, gateway, json } from './gateway.mjs';

const asked = (request) => `${request.method} ${new URL(request.url).pathname}${new URL(request.url).search}`;

test('a list is looped over, page by page', async () => {
  const found = gateway([json({ jobs: [{ job_id: '1' }], next: 'a' }), json({ jobs: [{ job_id: '2' }], next: null })]);
  const ids = [];
  for await (const job of found.client.jobs.list({ status: ['error'] })) ids.push(job.job_id);
  assert.deepEqual(ids, ['1', '2']);
  assert.deepEqual(found.asked.map(asked), ['GET /jobs?status=error', 'GET /jobs?status=error&after=a']);
});

test('a thing is named by its id, and a query or a body follows', async () => {
  const { client, asked: requests } = gateway([json({})]);
  await client.jobs.get('a/b', { wait: 3 });
  await client.jobs.pause('1');
  await client.schedules.create({ spider: 'seo', interval: '@daily' });
  await client.schedules.update('2', { interval: '@hourly' });
  await client.keys.list();
  assert.deepEqual(requests.map(asked), ['GET /jobs/a%2Fb?wait=3', 'POST /jobs/1/pause', 'POST /schedules', 'PATCH /schedules/2', 'GET /keys']);
  assert.deepEqual(await requests[3].json(), { interval: '@hourly' });
});

test('its limits come last', async () => {
  const { client, asked: requests } = gateway([away]);
  await assert.rejects(client.jobs.get('1', {}, { retries: 1 }), GatewayUnreachableError);
  await assert.rejects(client.schedules.get('1', { retries: 1 }), GatewayUnreachableError);
  assert.equal(requests.length, 4);
});

test('without an id nothing is sent', async () => {
  const { client, asked: requests } = gateway([json({})]);
  await assert.rejects(client.jobs.delete(''), TypeError);
  await assert.rejects(client.jobs.delete(undefined), TypeError);
  assert.equal(requests.length, 0);
});
