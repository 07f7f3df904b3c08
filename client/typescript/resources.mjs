// Writes resources.ts: the methods of a client with their documentation, and what the calls of the API take and are
// answered, of the API's description. `make typescript-client` runs it.
import { readFileSync, writeFileSync } from 'node:fs';

const { paths, components } = JSON.parse(readFileSync('openapi.json', 'utf8'));

const RESOURCES = {
  jobs: {
    about: 'Crawls that were asked for. `client.startCrawl` makes one.',
    list: 'list_jobs',
    get: 'get_job',
    count: 'count_jobs',
    act: 'act_on_jobs',
    cancel: 'cancel_job',
    pause: 'pause_job',
    resume: 'resume_job',
    retry: 'retry_job',
    delete: 'delete_job',
    items: 'list_job_items',
    exportItems: 'download_job_items',
    logLines: 'get_job_log_lines',
    exportLog: 'download_job_log',
    requests: 'list_job_requests',
    exportRequests: 'download_job_requests',
    files: 'list_job_files',
    readFile: 'get_job_file',
    errors: 'list_job_error_groups',
    differences: 'get_item_differences',
    timeline: 'get_job_timeline',
  },
  schedules: {
    about: 'Crawls at times to come.',
    list: 'list_schedules',
    get: 'get_schedule',
    create: 'create_schedule',
    update: 'update_schedule',
    delete: 'delete_schedule',
    pause: 'pause_schedule',
    resume: 'resume_schedule',
    run: 'run_schedule',
    preview: 'preview_schedule',
    history: 'list_schedule_history',
    items: 'list_schedule_items',
    exportItems: 'download_schedule_items',
  },
  datasets: {
    about: 'What is known of the items of many runs.',
    list: 'list_datasets',
    get: 'get_dataset',
    put: 'put_dataset',
    update: 'update_dataset',
    delete: 'delete_dataset',
    items: 'list_dataset_items',
    exportItems: 'download_dataset_items',
    changes: 'list_dataset_changes',
    exportChanges: 'download_dataset_changes',
    runs: 'list_dataset_runs',
    health: 'get_dataset_health',
    run: 'get_dataset_run',
    acceptRun: 'accept_dataset_run',
    rejectRun: 'reject_dataset_run',
    exportRun: 'export_dataset_run',
  },
  endpoints: {
    about: 'Addresses that are called with events.',
    list: 'list_endpoints',
    get: 'get_endpoint',
    create: 'create_endpoint',
    update: 'update_endpoint',
    delete: 'delete_endpoint',
    test: 'test_endpoint',
    deliveries: 'list_endpoint_deliveries',
    resend: 'resend_endpoint_deliveries',
  },
  errors: {
    about: 'Errors of all runs, those that are alike together.',
    list: 'list_error_groups',
    get: 'get_error_group',
    update: 'update_error_group',
  },
  alerts: {
    about: 'What the rules have found.',
    list: 'list_alerts',
    get: 'get_alert',
    silence: 'silence_alert',
    delete: 'delete_alert',
  },
  alertRules: {
    about: 'When there is an alert.',
    list: 'list_alert_rules',
    get: 'get_alert_rule',
    create: 'create_alert_rule',
    preview: 'preview_alert_rule',
    update: 'update_alert_rule',
    delete: 'delete_alert_rule',
  },
  targets: {
    about: 'What is searched for on sites, again and again.',
    list: 'list_targets',
    get: 'get_target',
    create: 'create_target',
    update: 'update_target',
    delete: 'delete_target',
  },
  deadLetters: {
    about: 'Jobs that nothing could be made of.',
    list: 'list_dead_letters',
    requeue: 'requeue_dead_letter',
    dismiss: 'dismiss_dead_letter',
  },
  sites: {
    about: 'Job boards and other sites that are searched.',
    list: 'list_sites',
    get: 'get_site',
    create: 'create_site',
    update: 'update_site',
    delete: 'delete_site',
  },
  spiders: { about: 'What can crawl.', list: 'list_spiders' },
  projects: {
    about: 'Projects whose spiders are deployed.',
    list: 'list_projects',
    versions: 'list_versions',
    activate: 'activate_version',
    rollBack: 'roll_back_project',
  },
  nodes: {
    about: 'Machines that crawl.',
    list: 'list_nodes',
    get: 'get_node',
    drain: 'drain_node',
    resume: 'resume_node',
    forget: 'forget_node',
  },
  keys: { about: 'Who may do what.', list: 'list_keys', create: 'create_key', revoke: 'revoke_key' },
};

/** POSTs whose second one changes nothing more. */
const REPEATABLE = ['act_on_jobs', 'cancel_job', 'preview_alert_rule', 'preview_crawl'];

const operations = new Map();
for (const [path, methods] of Object.entries(paths)) {
  for (const [method, operation] of Object.entries(methods)) {
    if (operation.operationId && !operation.tags.includes('firecrawl'))
      operations.set(operation.operationId, { ...operation, name: `${method.toUpperCase()} ${path}` });
  }
}

const nameOf = (reference) => reference.slice(reference.lastIndexOf('/') + 1);
const resolved = (schema = {}) => (schema.$ref ? components.schemas[nameOf(schema.$ref)] : schema);
const camel = (name) => name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase());
const pascal = (name) => camel(`_${name}`);
const parameters = (operation, place) => (operation.parameters ?? []).filter((one) => one.in === place);
const bodyOf = (operation) => operation.requestBody?.content['application/json']?.schema;
const isKeyed = (operation) => parameters(operation, 'header').some(({ name }) => name === 'Idempotency-Key');

/** Where a call takes the user, if it need not be said. */
function placeOfUser(operation) {
  if (parameters(operation, 'query').some(({ name, required }) => name === 'user_id' && !required)) return 'query';
  const { properties = {}, required = [] } = resolved(bodyOf(operation));
  if (properties.user_id) return required.includes('user_id') ? undefined : 'body';
  return resolved(properties.filter).properties?.user_id ? 'filter' : undefined;
}

function answerOf(operation) {
  const done = Object.entries(operation.responses).filter(([status]) => status.startsWith('2'));
  return done.map(([, { content }]) => content?.['application/json']?.schema);
}

/** How an answer is read that is no JSON: by its type, a file would be a text, an object or a `Blob`. */
function readAs(operation) {
  const done = Object.entries(operation.responses).filter(([status]) => status.startsWith('2'));
  const schemas = done.flatMap(([, { content = {} }]) => Object.values(content).map(({ schema }) => schema));
  if (!schemas.length || !schemas.every(({ type }) => type === 'string')) return undefined;
  return schemas.every(({ format }) => format === 'binary') ? 'blob' : 'text';
}

function typeOf(schema) {
  if (!schema) return 'void';
  if (schema.oneOf) return schema.oneOf.map(typeOf).join(' | ');
  return schema.$ref ? `api.${nameOf(schema.$ref)}` : 'Record<string, unknown>';
}

/** The array of an answer that is a list. */
function rowsOf({ properties = {}, required = [] }) {
  const arrays = required.filter((name) => properties[name].type === 'array');
  if (arrays.includes(required[0])) return required[0];
  return required.includes('next') && arrays.length === 1 ? arrays[0] : undefined;
}

function comment(indent, { summary, description }) {
  const lines = `${summary}.\n\n${description ?? ''}`.trim().replaceAll('*/', '* /').split('\n');
  return `${indent}/** ${lines.join(`\n${indent} * `)} */\n`.replace(/ +$/gm, '');
}

/** The declaration of a method, and what makes it. */
function written(name, id) {
  const operation = operations.get(id);
  const data = `api.${pascal(id)}Data`;
  const ids = [...operation.name.matchAll(/\{(\w+)\}/g)].map(([, id]) => id);
  const path = ids.map((one) => `${camel(one)}: string`);
  const options = `options?: ${isKeyed(operation) ? 'KeyedOptions' : 'CallOptions'}`;
  const made = (how, ...more) =>
    `${how}(${[`sdk.${camel(id)}`, ...more, ...ids.map((one) => `'${one}'`)].join(', ')})`;
  const query = parameters(operation, 'query');
  if (readAs(operation)) {
    const format = query.find((one) => one.name === 'format');
    const declared = [...path, ...(format ? [`format: Format<${data}>`] : []), `options?: Exported<${data}>`].join(', ');
    const text = `    ${name}(${declared}): Promise<ReadableStream<Uint8Array>>;\n`;
    return [comment('    ', operation) + text, made('saves', Boolean(format))];
  }
  const page = resolved(answerOf(operation)[0]);
  const list = rowsOf(page);
  const limit = query.find((one) => one.name === 'limit');
  if (list && (name === 'list' || (limit && page.properties.next))) {
    const { items } = page.properties[list];
    // an object of any fields: only the caller knows the type
    const isFree = !resolved(items).properties && !resolved(items).oneOf;
    const given = limit ? `Listed<${data}>` : query.length ? `Listed<${data}, ListLimits>` : 'ListLimits';
    const declared = [...path, `given?: ${given}`, options].join(', ');
    const rows = isFree ? 'Item' : typeOf(items);
    const generic = isFree ? '<Item = Record<string, unknown>>' : '';
    const text = `    ${name}${generic}(${declared}): Pages<${rows}>;\n`;
    const most = limit ? Math.min(limit.schema.maximum, 1000) : 'undefined';
    return [comment('    ', operation) + text, made('lists', `'${list}'`, most)];
  }
  const body = resolved(bodyOf(operation));
  const isNeeded = !bodyOf(operation) || body.required?.length;
  const given = [];
  if (operation.requestBody) given.push(`body${isNeeded ? '' : '?'}: NonNullable<${data}['body']>`);
  const isAsked = query.some(({ required }) => required);
  // beside a body, what may be left out is for the function of this call
  if (isAsked || (query.length && !operation.requestBody))
    given.push(`query${isAsked ? '' : '?'}: NonNullable<${data}['query']>`);
  const declared = [...path, ...given, options].join(', ');
  const answer = [...new Set(answerOf(operation).map(typeOf))].join(' | ');
  const [first = '', second] = given;
  const how = second ? 'both' : first.startsWith('body') ? 'sends' : first ? 'asks' : 'does';
  return [`${comment('    ', operation)}    ${name}(${declared}): Promise<${answer}>;\n`, made(how)];
}

let declared = '';
let made = '';
for (const [resource, { about, ...methods }] of Object.entries(RESOURCES)) {
  const all = Object.entries(methods).map(([name, id]) => [name, ...written(name, id)]);
  declared += `  /** ${about} */\n  readonly ${resource}: {\n${all.map(([, text]) => text).join('')}  };\n`;
  made += `    ${resource}: {\n${all.map(([name, , how]) => `      ${name}: ${how},\n`).join('')}    },\n`;
}

/** By which loops go on or end. */
const DECIDING = ['kind', 'status', 'state', 'next'];

/** What an answer must have to be one: what it is about, which comes first, and what loops go by. Not all that is
 * required: a gateway of another release may have less. */
function essentials(operation) {
  const schemas = answerOf(operation).map(resolved);
  if (!schemas.length || !schemas.every(({ type, oneOf }) => type === 'object' || oneOf)) return {};
  const all = schemas.flatMap((schema) => schema.oneOf?.map(resolved) ?? [schema]);
  const [first, ...others] = all.map(({ required = [] }) => required);
  const common = first.filter((name) => others.every((names) => names.includes(name)));
  const has = common.filter((name, place) => place === 0 || DECIDING.includes(name));
  return { has, rows: rowsOf(all[0]) };
}

const calls = [...operations.values()]
  .map((operation) => {
    const again = isKeyed(operation) ? 'key' : REPEATABLE.includes(operation.operationId) ? 'safe' : undefined;
    const facts = { user: placeOfUser(operation), again, reads: readAs(operation), ...essentials(operation) };
    return [operation.name, facts];
  })
  .filter(([, facts]) => Object.values(facts).some((fact) => fact !== undefined));

writeFileSync(
  'resources.ts',
  `// resources.mjs has written this file.
import type { Client } from './api/client/index.js';
import * as sdk from './api/sdk.gen.js';
import type * as api from './api/types.gen.js';
import { type Exported, type Format, type KeyedOptions, type Listed, type ListLimits, methodsOf } from './methods.js';
import type { Pages } from './pages.js';
import type { CallOptions } from './requests.js';

/** The calls of the API about one kind of thing each. What they lack are functions that take the client. */
export interface Resources {
${declared}}

export function resources(client: Client): Resources {
  const { does, asks, sends, both, lists, saves } = methodsOf(client);
  return {
${made}  };
}

interface Call {
  /** Where the user's name goes. */
  user?: 'query' | 'body' | 'filter';
  /** Why it may be sent twice: with an idempotency key, or because a second one changes nothing more. */
  again?: 'key' | 'safe';
  /** How the answer is read that is no JSON. */
  reads?: 'blob' | 'text';
  /** What the object has that is the answer; without it, the answer is none. */
  has?: readonly string[];
  /** Its list. */
  rows?: string;
}

/** What calls take, and what they are answered. */
export const CALLS: Readonly<Record<string, Call>> = {
${calls.map(([name, facts]) => `  '${name}': ${JSON.stringify(facts)},\n`).join('')}};
`,
);
