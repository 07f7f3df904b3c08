import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ApiError, cancelJob, ConflictError, createCrawl, DiscoveryBot, DiscoveryBotError, GatewayUnreachableError, getHealth, getJob, InvalidAnswerError, KeyRefusedError, NoGatewayError, NotFoundError, pauseJob, TimeoutError, UnavailableError, VERSION } from 'discoverybot-client';
import { away, begun, closed, gateway, json, never, pauses, refused } from './gateway.mjs';

const JOB = { kind: 'job', job_id: '1', status: 'finished' };
const path = { job_id: '1' };

test('a GET is sent again until it is answered', async () => {
  const { client, asked } = gateway([away, refused(503, 'unavailable'), begun('{"kind": '), json(JOB)]);
  assert.deepEqual(await getJob({ client, path }), JOB);
  assert.equal(asked.length, 4);
});

test('what may be done twice is sent again after a failure of the gateway', async () => {
  const { client, asked } = gateway([refused(500, 'internal_error'), json(JOB)]);
  assert.deepEqual(await getJob({ client, path }), JOB);
  assert.equal(asked.length, 2);
  const once = gateway([refused(500, 'internal_error')]);
  await assert.rejects(pauseJob({ client: once.client, path }), { status: 500 });
  assert.equal(once.asked.length, 1);
});

test('it is sent so many times at most', async () => {
  const { client, asked } = gateway([away]);
  await assert.rejects(getJob({ client, path, retries: 2 }), (error) => error instanceof GatewayUnreachableError && error.cause instanceof TypeError);
  assert.equal(asked.length, 3);
  await assert.rejects(getJob({ client, path }), GatewayUnreachableError);
  assert.equal(asked.length, 3 + 7);
  const impatient = gateway([refused(503, 'unavailable')], { retries: 0 });
  await assert.rejects(getJob({ client: impatient.client, path }), { name: 'UnavailableError', status: 503 });
  assert.equal(impatient.asked.length, 1);
});

test('pauses double, and none is like that of other clients', async () => {
  const { client } = gateway([away]);
  await assert.rejects(getJob({ client, path }), GatewayUnreachableError);
  assert.equal(pauses.length, 6);
  for (const [number, pause] of pauses.entries()) {
    assert.ok(pause >= 125 * 2 ** number && pause <= 250 * 2 ** number, String(pauses));
  }
});

test('a gateway says when it wants to be asked again', async () => {
  const soon = new Date(Date.now() + 60_000).toUTCString();
  const { client } = gateway([refused(429, 'rate_limited', { 'Retry-After': '7' }), refused(503, 'unavailable', { 'Retry-After': soon }), json(JOB)]);
  await getJob({ client, path });
  assert.equal(pauses[0], 7000);
  assert.ok(pauses[1] > 30_000 && pauses[1] <= 60_000);
});

test('what would take too long is an error at once', async () => {
  const { client, asked } = gateway([refused(429, 'budget_spent', { 'Retry-After': '3600' })]);
  await assert.rejects(getJob({ client, path }), { code: 'budget_spent', retryAfter: 3600 });
  const other = gateway([refused(429, 'rate_limited', { 'Retry-After': '9' })]);
  await assert.rejects(getJob({ client: other.client, path, timeout: 5 }), { code: 'rate_limited', retryAfter: 9 });
  assert.deepEqual([asked.length, other.asked.length], [1, 1]);
});

test('what may not be done twice is sent once', async () => {
  for (const answer of [away, refused(502, 'http_error')]) {
    const { client, asked } = gateway([answer]);
    await assert.rejects(pauseJob({ client, path }), DiscoveryBotError);
    await assert.rejects(client.endpoints.create({ url: 'https://example.com' }), DiscoveryBotError);
    assert.deepEqual(asked.map((request) => request.method), ['POST', 'POST']);
  }
});

test('what was not done is sent again, whatever it is', async () => {
  const { client, asked } = gateway([closed, refused(503, 'starting'), refused(429, 'rate_limited'), json(JOB)]);
  assert.deepEqual(await pauseJob({ client, path }), JOB);
  assert.equal(asked.length, 4);
  const none = gateway([closed], { retries: 0 });
  await assert.rejects(pauseJob({ client: none.client, path }), GatewayUnreachableError);
  assert.equal(none.asked.length, 1);
});

test('with an idempotency key it is sent again, with the same body', async () => {
  const { client, asked } = gateway([away, json({ job_id: '1' }, 202)]);
  await createCrawl({ client, body: { spider: 'seo' }, headers: { 'Idempotency-Key': 'k' } });
  assert.deepEqual(await Promise.all(asked.map((request) => request.text())), ['{"spider":"seo"}', '{"spider":"seo"}']);
  const made = gateway([away, json({ job_id: '1' }, 202), away, json({ schedule_id: '2', state: 'active' }, 201)]);
  await createCrawl({ client: made.client, body: { spider: 'seo' } });
  await made.client.schedules.create({ spider: 'seo', interval: '@daily' });
  const keys = made.asked.map((request) => request.headers.get('Idempotency-Key'));
  assert.deepEqual([keys[0], keys[2], new Set(keys).size], [keys[1], keys[3], 2]);
  const own = gateway([away, json({ job_id: '1' }, 202)]);
  await own.client.startCrawl({ spider: 'seo' }, { idempotencyKey: 'mine' });
  assert.deepEqual(own.asked.map((request) => request.headers.get('Idempotency-Key')), ['mine', 'mine']);
});

test('cancelling is asked for again', async () => {
  for (const cancel of [(client) => client.cancel('1'), (client) => client.jobs.cancel('1'), (client) => cancelJob({ client, path })]) {
    const { client, asked } = gateway([...Array(9).fill(away), json(JOB)]);
    await cancel(client);
    assert.equal(asked.length, 10);
  }
});

test('the limits of a client hold for what is asked for again and again', async () => {
  for (const call of [(client) => client.startCrawl({ spider: 'seo' }), (client) => client.cancel('1'), (client) => client.waitForJob('1')]) {
    const { client, asked } = gateway([away], { retries: 1, timeout: 200 });
    await assert.rejects(call(client), (error) => error instanceof GatewayUnreachableError && error.message.includes('http://gateway'));
    assert.equal(asked.length, 2);
  }
  const { client, asked } = gateway([away], { retries: 0 });
  await assert.rejects(client.cancel('1', { retries: 2 }), GatewayUnreachableError);
  assert.equal(asked.length, 3);
});

test('a limit that is undefined is the default', async () => {
  const { client, asked } = gateway([away, away, json(JOB)], { retries: undefined, timeout: undefined });
  assert.deepEqual(await getJob({ client, path }), JOB);
  await client.cancel('1', { retries: undefined, timeout: undefined });
  assert.equal(asked.length, 4);
  const other = gateway([away, json(JOB)]);
  await other.client.cancel('1', { retries: undefined });
  assert.equal(other.asked.length, 2);
});

test('a refusal is not sent again, and says what is wrong', async () => {
  const { client, asked } = gateway([refused(422, 'invalid_request')]);
  const error = await getJob({ client, path }).catch((caught) => caught);
  assert.ok(error instanceof ApiError && error instanceof DiscoveryBotError && error instanceof Error);
  const { name, status, code, message, detail, field, requestId } = error;
  assert.deepEqual({ name, status, code, message, detail, field, requestId }, {
    name: 'InvalidRequestError', status: 422, code: 'invalid_request', message: 'no', detail: { field: 'depth' }, field: 'depth', requestId: 'r1',
  });
  assert.equal(asked.length, 1);
});

test('the page of a proxy is an error, too', async () => {
  const { client } = gateway([() => new Response('<h1>no</h1>', { status: 500, headers: { 'Content-Type': 'text/html' } })]);
  await assert.rejects(getJob({ client, path }), { name: 'ApiError', status: 500, code: 'http_error', message: 'GET http://gateway/jobs/1 is answered 500, but not as a gateway does: <h1>no</h1>' });
});

test('that a gateway is down is an answer to who asks how it is, but not a 503 of another kind', async () => {
  for (const status of ['down', 'starting']) {
    const told = { status, checks: {} };
    const { client, asked } = gateway([json(told, 503)]);
    assert.deepEqual(await client.platform.health(), told);
    assert.deepEqual(await getHealth({ client }), told);
    assert.equal(asked.length, 2);
  }
  for (const answer of [refused(503, 'store_away'), json('down', 503), () => new Response('<h1>no</h1>', { status: 503 })]) {
    const { client, asked } = gateway([answer], { retries: 1 });
    await assert.rejects(client.platform.health(), UnavailableError);
    assert.equal(asked.length, 2);
  }
});

test('an error has a class of its own', async () => {
  for (const [status, Kind] of [[401, KeyRefusedError], [404, NotFoundError], [409, ConflictError], [503, UnavailableError]]) {
    const { client } = gateway([refused(status, 'some_code')], { retries: 0 });
    const error = await getJob({ client, path }).catch((caught) => caught);
    assert.ok(error instanceof Kind && error instanceof ApiError);
    assert.deepEqual([error.name, error.code], [Kind.name, 'some_code']);
  }
});

test('a wrong address is no object that is not there', async () => {
  const message = 'GET http://gateway/jobs/1 is answered 404, but not as a gateway does: {"detail":"Not Found"}';
  const { client } = gateway([json({ detail: 'Not Found' }, 404)]);
  await assert.rejects(getJob({ client, path }), { name: 'NoGatewayError', status: 404, code: 'http_error', message });
});

test('a redirect is not followed', async () => {
  const { client, asked } = gateway([() => new Response('', { status: 302, headers: { Location: 'https://login.example/' } })]);
  await assert.rejects(getJob({ client, path }), { name: 'NoGatewayError', status: 302, message: /302.*https:\/\/login\.example/ });
  await assert.rejects(client.startCrawl({ spider: 'seo' }), NoGatewayError);
  assert.deepEqual(asked.map(({ redirect }) => redirect), ['manual', 'manual']);
});

test('a web page is no answer, but an error at once', async () => {
  const page = () => new Response('<h1>Log in</h1>', { headers: { 'Content-Type': 'text/html; charset=utf-8' } });
  const error = { name: 'NoGatewayError', status: 200, code: 'http_error', message: /web page.*http:\/\/gateway/ };
  const { client, asked } = gateway([page]);
  await assert.rejects(client.startCrawl({ spider: 'seo' }), error);
  await assert.rejects(client.jobItems('1').next(), error);
  await assert.rejects(client.followJob('1').next(), error);
  assert.equal(asked.length, 3);
});

test('an answer that is no JSON is an error of this package, at once', async () => {
  const { client, asked } = gateway([() => new Response('{"kind": ', { headers: { 'Content-Type': 'application/json' } })]);
  const error = await getJob({ client, path }).catch((caught) => caught);
  assert.ok(error instanceof InvalidAnswerError && error instanceof DiscoveryBotError && error.cause instanceof SyntaxError);
  assert.equal(asked.length, 1);
});

test('a program hears of each request that is sent again', async () => {
  const heard = [];
  const { client } = gateway([away, refused(503, 'unavailable', { 'Retry-After': '7' }), json(JOB)], { onRetry: (retry) => heard.push(retry) });
  await getJob({ client, path });
  assert.deepEqual(heard.map(({ method, url, attempt }) => [method, url, attempt]), [['GET', 'http://gateway/jobs/1', 1], ['GET', 'http://gateway/jobs/1', 2]]);
  assert.ok(heard[0].error instanceof GatewayUnreachableError);
  assert.deepEqual([heard[1].error.code, heard[1].pause], ['unavailable', 7]);
  const other = gateway([away], { onRetry: () => { throw new Error('enough'); } });
  await assert.rejects(getJob({ client: other.client, path }), { message: 'enough' });
  assert.equal(other.asked.length, 1);
});

test('a request says which program it comes from, but not in browsers', async (t) => {
  const { client, asked } = gateway([json(JOB)]);
  await getJob({ client, path });
  assert.ok(asked[0].headers.get('User-Agent').startsWith(`discoverybot-client/${VERSION} (TypeScript)`));
  const own = gateway([json(JOB)], { headers: { 'user-agent': 'mine/1' } });
  await getJob({ client: own.client, path });
  assert.equal(own.asked[0].headers.get('User-Agent'), 'mine/1');
  const before = Object.getOwnPropertyDescriptor(globalThis, 'navigator');
  t.after(() => (before ? Object.defineProperty(globalThis, 'navigator', before) : delete globalThis.navigator));
  Object.defineProperty(globalThis, 'navigator', { value: { userAgent: 'Mozilla/5.0 (X11)' }, configurable: true });
  const page = gateway([json(JOB)]);
  await getJob({ client: page.client, path });
  assert.equal(page.asked[0].headers.get('User-Agent'), null);
});

test('a connection without a word is given up, and the request sent again', async () => {
  const { client, asked } = gateway([never, begun('{', { breaks: false }), json(JOB)]);
  assert.deepEqual(await getJob({ client, path, silence: 10 }), JOB);
  assert.equal(asked.length, 3);
});

test('all of it has one deadline', async () => {
  for (const answer of [never, begun('{', { breaks: false })]) {
    const { client, asked } = gateway([away, answer]);
    const error = await getJob({ client, path, timeout: 10 }).catch((caught) => caught);
    assert.ok(error instanceof TimeoutError, String(error));
    assert.ok(error.cause instanceof GatewayUnreachableError);
    assert.equal(asked.length, 2);
  }
});

test('a signal ends a request, and a pause', async () => {
  for (const answer of [never, refused(503, 'unavailable', { 'Retry-After': '100' })]) {
    const controller = new AbortController();
    const { client, asked } = gateway([(request) => {
      setImmediate(() => controller.abort(new Error('enough')));
      return answer(request);
    }]);
    await assert.rejects(getJob({ client, path, signal: controller.signal }), { message: 'enough' });
    assert.equal(asked.length, 1);
  }
});

test('an error says what was wrong with the connection, and whether the request was sent', async () => {
  const reset = () => {
    throw new TypeError('fetch failed', { cause: Object.assign(new Error(''), { code: 'ECONNRESET' }) });
  };
  for (const [answer, message, wasSent] of [
    [closed, 'the gateway at http://gateway does not answer: connect', false],
    [reset, 'the gateway at http://gateway does not answer: ECONNRESET', true],
    [away, 'the gateway at http://gateway does not answer: fetch failed', true],
    [begun('{'), 'the answer of http://gateway broke off: terminated', true],
  ]) {
    const { client } = gateway([answer], { retries: 0 });
    const error = await getJob({ client, path }).catch((caught) => caught);
    assert.ok(error instanceof GatewayUnreachableError && error.cause instanceof TypeError);
    assert.deepEqual([error.message, error.wasSent], [message, wasSent]);
  }
});

test('what is no address of a gateway is refused at once, by its name', () => {
  for (const url of ['crawls', 'localhost:8001', '127.0.0.1:8001', 'ftp://crawls', 'http://', '', undefined, 'http://crawls?a=1', 'http://crawls/#a']) {
    assert.throws(() => new DiscoveryBot(url), { name: 'TypeError', message: `baseUrl: ${url} is not the address of a gateway, such as https://crawls.example.com` });
  }
  for (const url of ['http://crawls', 'https://crawls/proxied/', new URL('http://[::1]:8001')]) new DiscoveryBot(url);
});

test('a secret is in no error', () => {
  for (const [url, options, message] of [
    ['http://me:secret@crawls', {}, /^baseUrl: /],
    ['http://crawls', { key: 'db_secret\nx' }, /^key: /],
    ['http://crawls', { headers: { 'X-Proxy': 'secret\u2028' } }, /^headers: X-Proxy: /],
  ]) {
    assert.throws(() => new DiscoveryBot(url, options), (error) => error instanceof TypeError && message.test(error.message) && !String(error.stack).includes('secret'));
  }
  new DiscoveryBot('http://crawls', { key: 'db_of_a_file\n' });
});

test('what is wrong in a program is not taken for a gateway that is away', async () => {
  const { client, asked } = gateway([json(JOB)]);
  const body = {};
  body.parameters = body; // no JSON
  await assert.rejects(createCrawl({ client, body }), TypeError);
  assert.equal(asked.length, 0);
});

test('clients share nothing', async () => {
  const first = gateway([json(JOB)], { key: 'db_1' });
  const second = gateway([json(JOB)], { headers: { 'X-Proxy': 'p' } });
  await getJob({ client: first.client, path });
  await getJob({ client: second.client, path });
  const [one, two] = [first.asked[0].headers, second.asked[0].headers];
  assert.deepEqual([one.get('Authorization'), two.get('Authorization'), one.get('X-Proxy'), two.get('X-Proxy')], ['Bearer db_1', null, null, 'p']);
});
