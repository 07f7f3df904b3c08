// Writes resources.ts: the methods of a client with their documentation, and what the calls of the API take and are
// answered, of the API's description; and changes what the generator of types cannot be told to write otherwise.
// `make typescript-client` runs it.
import { readFileSync, writeFileSync } from 'node:fs';

const { paths, components } = JSON.parse(readFileSync('openapi.json', 'utf8'));

/** What each thing is, and its methods: the call, and what it does in the words of this package. */
const RESOURCES = {
  jobs: {
    about: 'Crawls that were asked for: `client.startCrawl` makes one.',
    list: ['list_jobs', 'Jobs, the newest first unless `sort` says otherwise.'],
    get: [
      'get_job',
      'All that is known of a job; `NotAJobError` for the id of a schedule. With `wait`, it is answered once ' +
        'the job has ended, or after so many seconds.',
    ],
    count: ['count_jobs', 'How many jobs there are, up to 10,000. With `q` or `host` it counts for two seconds.'],
    act: [
      'act_on_jobs',
      'Cancels, retries or deletes all jobs that `filter` names. Without `expect` it only counts them. With ' +
        '`matched` and `as_of` of that answer as `expect` and `as_of` it acts on these jobs, for about two ' +
        'seconds: while `next` is not null, call it again with it as `after`.',
    ],
    cancel: ['cancel_job', 'Cancels a job, or a schedule by its id. A running job ends within seconds.'],
    pause: [
      'pause_job',
      'Pauses a job. A running one goes on until its crawl has stopped, and keeps what it still has to ' +
        'fetch.',
    ],
    resume: ['resume_job', 'Lets a paused job go on where it was, or begin anew if its node is full or gone.'],
    retry: ['retry_job', 'Makes a new job that crawls the same again.'],
    delete: ['delete_job', 'Deletes an ended job with its items and its log.'],
    items: [
      'list_job_items',
      'The items of a job; of one that goes on, those that there are. Give their type, if you know it.',
    ],
    exportItems: ['download_job_items', 'All items of a job as a file, byte by byte.'],
    logLines: ['get_job_log_lines', 'Lines of a log, to its end so far. `client.followJob` waits for those to come.'],
    exportLog: ['download_job_log', 'The log so far as a file, byte by byte.'],
    requests: ['list_job_requests', 'The requests of a crawl to sites, each with its redirects and retries.'],
    exportRequests: ['download_job_requests', 'The requests of a crawl to sites as a file, byte by byte.'],
    files: ['list_job_files', 'The files that a crawl has written.'],
    readFile: ['get_job_file', 'One of the files that a crawl has written, byte by byte.'],
    errors: [
      'list_job_error_groups',
      'The errors of a job, those that are alike together, and whether they are new.',
    ],
    differences: [
      'get_item_differences',
      'Which items are new, changed or gone since another run, by `url` or another key.',
    ],
    progress: ['get_job_progress', 'How the counts of a job went over time, and how long it may still take.'],
    timeline: [
      'get_job_timeline',
      'The moments of a job: when it was asked for, why it waited, its attempts and its end.',
    ],
    runs: ['list_job_runs', 'Runs like this one, for comparison.'],
  },
  schedules: {
    about: 'Crawls that are repeated.',
    list: ['list_schedules', 'Schedules, the newest first; those of sites and targets, too.'],
    get: ['get_schedule', 'All that is known of a schedule.'],
    create: [
      'create_schedule',
      'Crawls again and again: `interval` is `0 9 * * *`, `@daily` or `every 15m`. The same crawl at the ' +
        'same times is answered with the schedule that there is. If the answer is lost it is asked again, and ' +
        'stays one schedule.',
    ],
    update: [
      'update_schedule',
      'Replaces the given fields. With `rev`, only if nobody else has changed the schedule meanwhile.',
    ],
    delete: ['delete_schedule', 'Deletes a schedule with its history. Its runs stay.'],
    pause: ['pause_schedule', 'Begins no run until `resume`. The one under way goes on.'],
    resume: ['resume_schedule', 'Lets runs begin again when they are due.'],
    run: ['run_schedule', 'Runs it now, beside the runs that are due.'],
    preview: ['preview_schedule', 'The runs to come.'],
    history: [
      'list_schedule_history',
      'Each time at which it was due, the latest first, with its job or why there is none.',
    ],
    items: [
      'list_schedule_items',
      'The items of the run under way, or else of the latest one. Give their type, if you know it.',
    ],
    exportItems: [
      'download_schedule_items',
      'All items of the run under way, or else of the latest one, as a file, byte by byte.',
    ],
    days: ['get_schedule_days', 'How its runs went, day by day.'],
  },
  datasets: {
    about: 'Items that are tracked across runs.',
    list: ['list_datasets', 'Datasets, the newest first.'],
    get: ['get_dataset', 'A dataset with its options, and how many items it has.'],
    put: ['put_dataset', 'Makes a dataset, or sets all its options: those that are left out get their defaults.'],
    update: ['update_dataset', 'Replaces the given options.'],
    delete: ['delete_dataset', 'Deletes its items and changes. The jobs stay.'],
    items: ['list_dataset_items', 'The items that are present; with `removed`, removed ones, too.'],
    exportItems: [
      'download_dataset_items',
      'The items that are present as a file, byte by byte; with `removed`, removed ones, too.',
    ],
    changes: [
      'list_dataset_changes',
      'The changes after `since`, in order. The `seq` of the last one is `since` of the next loop; ' +
        '`CursorExpiredError` if such changes are no longer kept. `client.followChanges` waits for those to ' +
        'come, and `client.waitForRun` for those of a crawl.',
    ],
    exportChanges: ['download_dataset_changes', 'The changes after `since` as a file, byte by byte.'],
    runs: ['list_dataset_runs', 'What each crawl has done to it, the newest first.'],
    run: [
      'get_dataset_run',
      'What the crawl of this job has done to it. It is there up to some seconds after the job has ended: ' +
        'see `client.waitForRun`.',
    ],
    acceptRun: [
      'accept_dataset_run',
      'Publishes the changes of a held run. With `new_normal`, what is normal is learned again from it on.',
    ],
    rejectRun: ['reject_dataset_run', 'Drops a held run: it changes nothing.'],
    exportRun: ['export_dataset_run', 'Writes the exports of a published run that are missing, within seconds.'],
    health: ['get_dataset_health', 'How the last run compares with what is normal.'],
  },
  endpoints: {
    about: 'Receivers of events.',
    list: ['list_endpoints', 'Endpoints, the newest first.'],
    get: ['get_endpoint', 'An endpoint, without its secret.'],
    create: [
      'create_endpoint',
      'Calls a URL for events of these types from now on. The answer has the secret for `verify`.',
    ],
    update: ['update_endpoint', 'Replaces the given fields. What happens while it is paused is kept for `resend`.'],
    delete: ['delete_endpoint', 'Deletes an endpoint with its deliveries, also those that are still to be made.'],
    test: ['test_endpoint', 'Calls it with an event `endpoint.test`.'],
    deliveries: ['list_endpoint_deliveries', 'What it was sent and what came of it, the newest first.'],
    resend: ['resend_endpoint_deliveries', 'Sends deliveries again, with the same `webhook-id`.'],
    secret: ['get_endpoint_secret', 'Its secret, for `verify`.'],
    renewSecret: [
      'renew_endpoint_secret',
      'Makes a new secret. For some time, calls are signed with the old one, too.',
    ],
  },
  errors: {
    about: 'Errors of all runs, those that are alike together.',
    list: ['list_error_groups', 'Errors, the last seen first unless `sort` says otherwise.'],
    get: ['get_error_group', 'An error with its last runs and an example in a log.'],
    update: ['update_error_group', 'Resolves or reopens it. It opens again by itself if it occurs in a later run.'],
  },
  alerts: {
    about: 'What the rules have found.',
    list: ['list_alerts', 'Alerts that fire and those that are over, the latest first.'],
    get: ['get_alert', 'An alert: what was found, and since when.'],
    silence: ['silence_alert', 'Tells nobody of it for some time.'],
    delete: ['delete_alert', 'Forgets it, and what its rule has learned from earlier runs.'],
  },
  alertRules: {
    about: 'When there is an alert.',
    list: ['list_alert_rules', 'Rules that were made, and those that are built in.'],
    get: ['get_alert_rule', 'A rule.'],
    create: ['create_alert_rule', 'Makes a rule, for the runs to come or the present state.'],
    preview: ['preview_alert_rule', 'Which alerts a rule would have raised in the last days. Nothing is stored.'],
    update: ['update_alert_rule', 'Replaces the given fields. A built-in rule is changed for its caller alone.'],
    delete: [
      'delete_alert_rule',
      'Deletes a rule with its alerts, or what the caller has changed of a built-in one.',
    ],
  },
  targets: {
    about: 'Searches on sites, which are repeated.',
    list: ['list_targets', 'Targets, by their number.'],
    get: ['get_target', 'A target: what is searched for, and how often.'],
    create: ['create_target', 'Searches a site for something again and again from now on.'],
    update: ['update_target', 'Replaces the given fields.'],
    delete: ['delete_target', 'Deletes a target with its schedule. Its runs go on.'],
  },
  deadLetters: {
    about: 'Jobs that are out of retries.',
    list: ['list_dead_letters', 'Dead letters, the newest first.'],
    requeue: [
      'requeue_dead_letter',
      'Makes a new job that crawls the same again, and takes the old one off the list.',
    ],
    dismiss: ['dismiss_dead_letter', 'Takes a job off the list. The job itself stays.'],
  },
  sites: {
    about: 'Job boards and other sites that are searched.',
    list: ['list_sites', 'Sites, by their name.'],
    get: ['get_site', 'A site.'],
    create: ['create_site', 'Adds a site, which is crawled at its interval from now on.'],
    update: ['update_site', 'Replaces the given fields. A disabled site and its targets are not crawled.'],
    scrape: ['scrape_site', 'Searches a site now.'],
    days: ['get_site_days', 'How its runs went, day by day.'],
    delete: ['delete_site', 'Deletes a site; with `force`, its targets, too.'],
  },
  spiders: {
    about: 'What can crawl.',
    list: ['list_spiders', 'Each spider of each version that the nodes have, with its arguments.'],
    days: ['get_spider_days', 'How its runs went, day by day.'],
    fields: ['get_spider_fields', 'How full the fields of its items were in its last good runs.'],
  },
  projects: {
    about: 'Projects of spiders: `client.deploy` makes one.',
    list: ['list_projects', 'Projects, by their name. `default` is that of the platform.'],
    versions: ['list_versions', 'Its versions; the one that was deployed last comes first.'],
    dependencies: ['get_version_dependencies', 'What each node has installed for a version.'],
    activate: ['activate_version', 'Makes a version the one that crawls run if they name none.'],
    rollBack: ['roll_back_project', 'Goes back to the version before.'],
    deleteVersion: ['delete_version', 'Removes a version, from each node, too.'],
    variables: ['get_project_env', 'Its environment variables; secret ones without their value.'],
    setVariable: ['set_project_variable', 'Sets a variable, for attempts that begin later.'],
    unsetVariable: ['unset_project_variable', 'Removes a variable.'],
    replaceVariables: ['replace_project_env', 'Sets these variables, and removes all others.'],
    settings: ['get_project_settings', 'Its settings, as far as they were set here and not in its code.'],
    replaceSettings: ['replace_project_settings', 'Sets these settings, and removes all others.'],
    days: ['get_project_days', 'How its runs went, day by day.'],
  },
  nodes: {
    about: 'Machines that crawl.',
    list: ['list_nodes', 'Nodes, each with its state and what to do about it.'],
    get: ['get_node', 'A node.'],
    drain: [
      'drain_node',
      'Gives a node no more jobs. With `wait`, it is answered once its machine may be removed, or after so ' +
        'many seconds.',
    ],
    resume: ['resume_node', 'Gives a node jobs again.'],
    forget: ['forget_node', 'Takes a node off the list whose machine is gone.'],
    invite: ['invite_node', 'Makes an invitation, with which one machine can become a node.'],
  },
  keys: {
    about: 'Keys of the gateway.',
    list: ['list_keys', 'Keys, the oldest first; expired and revoked ones, too.'],
    create: ['create_key', 'Makes a key. Only this answer has its text.'],
    revoke: ['revoke_key', 'Makes a key invalid, within seconds. It stays on the list.'],
  },
  platform: {
    about: 'How the gateway and what is behind it fare, and who is asking.',
    health: ['get_health', 'What works and what does not: `status` is `ok`, `degraded`, `starting` or `down`.'],
    jobs: ['get_jobs_health', 'What waits and for how long, for monitoring.'],
    queue: ['get_queue_status', 'What waits and for what, what runs, and how sites fare.'],
    scheduler: ['get_scheduler_status', 'Whether schedules are fired in time.'],
    whoami: ['get_session', 'Whom the key is for, and what it allows.'],
    audit: ['list_audit_entries', 'Who has done what, the newest first.'],
    webhookSecret: [
      'get_webhook_secret',
      'The secret of what `webhook_url` of a crawl is called with, for `verify`.',
    ],
    renewWebhookSecret: [
      'renew_webhook_secret',
      'Makes a new secret. For some time, calls are signed with the old one, too.',
    ],
  },
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

/** What a method is refused with, beside what any call may be. */
const THROWN = { 404: 'NotFoundError', 409: 'ConflictError' };

function comment(words, { responses }) {
  const lines = words.match(/.{1,105}(?: |$)/g).map((line) => line.trim());
  const thrown = Object.keys(THROWN).filter((status) => responses[status]).map((status) => THROWN[status]);
  if (thrown.length) lines.push('', `@throws ${thrown.join(', ')}`);
  return `    /** ${lines.join('\n     * ')} */\n`.replace(/ +$/gm, '');
}

/** The declaration of a method, and what makes it. */
function written(name, [id, words]) {
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
    const named = format ? [...path, `format: Format<${data}>`] : path;
    const declared = [...named, `options?: Exported<${data}>`].join(', ');
    const text = `    ${name}(${declared}): Promise<ReadableStream<Uint8Array>>;\n`;
    return [comment(words, operation) + text, made('saves', Boolean(format))];
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
    return [comment(words, operation) + text, made('lists', `'${list}'`, most)];
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
  // the id of a schedule is another call's
  const isJob = id === 'get_job';
  const answer = isJob ? 'api.JobDetail' : [...new Set(answerOf(operation).map(typeOf))].join(' | ');
  const [first = '', second] = given;
  const how = isJob ? 'asksJob' : second ? 'both' : first.startsWith('body') ? 'sends' : first ? 'asks' : 'does';
  return [`${comment(words, operation)}    ${name}(${declared}): Promise<${answer}>;\n`, made(how)];
}

let declared = '';
let made = '';
for (const [resource, { about, ...methods }] of Object.entries(RESOURCES)) {
  const all = Object.entries(methods).map(([name, how]) => [name, ...written(name, how)]);
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

/** The type of what an editor completes, though other texts are allowed: in `Name | string` a name is lost. */
const enumerations = Object.keys(components.schemas).filter((name) => components.schemas[name].enum);
const types = readFileSync('api/types.gen.ts', 'utf8');
const open = new RegExp(`\\b(${enumerations.join('|')}) \\| string\\b`, 'g');
writeFileSync('api/types.gen.ts', types.replaceAll(open, '$1 | (string & {})'));

/** The functions take our client, which shows programs nothing of the generator's. */
const functions = readFileSync('api/sdk.gen.ts', 'utf8')
  .replace('{ type Client, type Options', '{ type Options')
  .replace(/^import /m, "import type { DiscoveryBot } from '../client.js';\nimport { innerOf } from '../inner.js';\nimport ")
  .replace('    client: Client;', '    client: DiscoveryBot;')
  .replaceAll('options.client.', 'innerOf(options.client).');
writeFileSync('api/sdk.gen.ts', functions);

writeFileSync(
  'resources.ts',
  `// resources.mjs has written this file.
import * as sdk from './api/sdk.gen.js';
import type * as api from './api/types.gen.js';
import type { DiscoveryBot } from './client.js';
import { type Exported, type Format, type KeyedOptions, type Listed, type ListLimits, methodsOf } from './methods.js';
import type { Pages } from './pages.js';
import type { CallOptions } from './requests.js';

/** The calls of the API about one kind of thing each. What they lack are functions that take the client. */
export interface Resources {
${declared}}

export function resources(client: DiscoveryBot): Resources {
  const { does, asks, asksJob, sends, both, lists, saves } = methodsOf(client);
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
