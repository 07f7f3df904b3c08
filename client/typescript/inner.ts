/** What the functions of the API call of a client. It is the generator's, and nothing for programs. */

import type { Client } from './api/client/index.js';
import type { DiscoveryBot } from './client.js';

const INNER = new WeakMap<DiscoveryBot, Client>();

export function keepInner(client: DiscoveryBot, inner: Client): void {
  INNER.set(client, inner);
}

export function innerOf(client: DiscoveryBot): Client {
  const inner = INNER.get(client);
  if (!inner) throw new TypeError('client: a DiscoveryBot has to be given');
  return inner;
}
