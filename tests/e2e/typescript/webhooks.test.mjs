import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { test } from 'node:test';
import { verify, WebhookError } from 'discoverybot-client';

// of the standard's own tests
const SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
const BODY = '{"test": 2432232314}';
const SENT = 1614265330;
const HEADERS = {
  'webhook-id': 'msg_p5jXN8AQM9LWM0D4loKWxJek',
  'webhook-timestamp': String(SENT),
  'webhook-signature': 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=',
};
const now = SENT * 1000;

const signed = (body, secret = SECRET) =>
  `v1,${createHmac('sha256', Buffer.from(secret.slice(6), 'base64')).update(`${HEADERS['webhook-id']}.${SENT}.${body}`).digest('base64')}`;

test('a call is as it was signed, in whatever way it is given', async () => {
  const names = Object.fromEntries(Object.entries(HEADERS).map(([name, value]) => [name.toUpperCase(), [value]]));
  for (const headers of [HEADERS, new Headers(HEADERS), names]) {
    for (const body of [BODY, Buffer.from(BODY), new TextEncoder().encode(BODY).buffer]) {
      assert.deepEqual(await verify(headers, body, SECRET, { now }), { test: 2432232314 });
    }
  }
});

test('one of several signatures is enough while a secret is exchanged', async () => {
  const both = { ...HEADERS, 'webhook-signature': `v2,x v1,%% v1,AAAA ${HEADERS['webhook-signature']}` };
  assert.ok(await verify(both, BODY, SECRET, { now }));
});

test('what somebody else has made, or long ago, is refused', async () => {
  const refused = [
    [HEADERS, `${BODY} `, { now }],
    [{ ...HEADERS, 'webhook-id': 'msg_2' }, BODY, { now }],
    [{ ...HEADERS, 'webhook-timestamp': String(SENT + 1) }, BODY, { now }],
    [{ ...HEADERS, 'webhook-signature': HEADERS['webhook-signature'].slice(3) }, BODY, { now }],
    [HEADERS, BODY, { now: now + 301_000 }],
    [HEADERS, BODY, { now: now - 301_000 }],
    [HEADERS, BODY, { now: now + 2000, tolerance: 1 }],
    [HEADERS, BODY, {}],
    [{}, BODY, { now }],
    [{ ...HEADERS, 'webhook-timestamp': 'NaN' }, BODY, { now }],
  ];
  for (const [headers, body, options] of refused) await assert.rejects(verify(headers, body, SECRET, options), WebhookError);
  await assert.rejects(verify(HEADERS, BODY, `whsec_${btoa('another secret of 24 B')}`, { now }), WebhookError);
});

test('a signed body that is no object is refused', async () => {
  for (const body of ['[]', 'null', 'no JSON']) {
    const headers = { ...HEADERS, 'webhook-signature': signed(body) };
    await assert.rejects(verify(headers, body, SECRET, { now }), WebhookError);
  }
});

test('a secret that is none is a mistake of the program', async () => {
  for (const secret of ['', 'whsec_', 'whsec_%', `whsec_${btoa('short')}`]) await assert.rejects(verify(HEADERS, BODY, secret, { now }), TypeError);
});
