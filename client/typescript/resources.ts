/** Calls as methods, by what they are about: `client.jobs.list({ status: ['error'] })`. */

import type { Client } from './api/client/index.js';
import * as api from './api/sdk.gen.js';
import { each, type List, type PageOf, type Row } from './pages.js';
import type { CallOptions } from './requests.js';

// each takes other options, whose type `Parameters` knows
type Call = (options: any) => any;
type Part = 'query' | 'body' | 'neither';
/** What a call takes as this part of its request; `never` if it takes none. */
type Of<C extends Call, Name extends string> = NonNullable<Parameters<C>[0][Name]>;
type Answer<C extends Call> = Promise<Exclude<Awaited<ReturnType<C>>, undefined>>;
type Given<P> = [P] extends [never] ? [] : Record<never, never> extends P ? [given?: P] : [given: P];
type Id<C extends Call, By extends string | undefined> = By extends keyof Of<C, 'path'>
  ? [id: Of<C, 'path'>[By]]
  : [];
type IdName<C extends Call> = keyof Of<C, 'path'> & string;

/** The id, if it is about one thing; then what is asked for or sent; then limits. */
type Method<C extends Call, P extends Part, By extends string | undefined> = (
  ...given: [...Id<C, By>, ...Given<P extends 'neither' ? never : Of<C, P>>, options?: CallOptions]
) => Answer<C>;
type Loop<L extends List, By extends string | undefined> = (
  ...given: [...Id<L, By>, given?: Omit<Of<L, 'query'>, 'after'>, options?: CallOptions]
) => AsyncGenerator<Row<PageOf<L>>, void>;

function requestOf(client: Client, given: unknown[], part: Part, by: string | undefined): object {
  const rest = [...given];
  const id = by === undefined ? undefined : rest.shift();
  if (by !== undefined && (id === undefined || id === null || id === '')) throw new TypeError(`${by} is missing`);
  const path = by === undefined ? {} : { path: { [by]: id } };
  const sent = part === 'neither' ? {} : { [part]: rest.shift() };
  return { client, ...path, ...sent, ...(rest[0] as CallOptions | undefined) };
}

/** The calls of the API about one kind of thing each. What they lack are functions that take the client. */
export function resources(client: Client) {
  const method =
    <P extends Part>(part: P) =>
    <C extends Call, const By extends IdName<C> | undefined = undefined>(call: C, by?: By): Method<C, P, By> =>
    // one that fails before it is sent rejects, as all others do
    async (...given) =>
      call(requestOf(client, given, part, by));
  const does = method('neither');
  const asks = method('query');
  const sends = method('body');
  const lists =
    <L extends List, const By extends IdName<L> | undefined = undefined>(call: L, by?: By): Loop<L, By> =>
    (...given) =>
      each(call, requestOf(client, given, 'query', by) as Parameters<L>[0]);

  return {
    /** Crawls that were asked for. `client.startCrawl` makes one. */
    jobs: {
      list: lists(api.listJobs),
      get: asks(api.getJob, 'job_id'),
      count: asks(api.countJobs),
      act: sends(api.actOnJobs),
      cancel: does(api.cancelJob, 'job_id'),
      pause: does(api.pauseJob, 'job_id'),
      resume: does(api.resumeJob, 'job_id'),
      retry: does(api.retryJob, 'job_id'),
      delete: does(api.deleteJob, 'job_id'),
      items: lists(api.listJobItems, 'job_id'),
      logLines: lists(api.getJobLogLines, 'job_id'),
      requests: lists(api.listJobRequests, 'job_id'),
      files: lists(api.listJobFiles, 'job_id'),
      errors: asks(api.listJobErrorGroups, 'job_id'),
      differences: asks(api.getItemDifferences, 'job_id'),
      timeline: does(api.getJobTimeline, 'job_id'),
    },
    /** Crawls at times to come. */
    schedules: {
      list: lists(api.listSchedules),
      get: does(api.getSchedule, 'schedule_id'),
      create: sends(api.createSchedule),
      update: sends(api.updateSchedule, 'schedule_id'),
      delete: does(api.deleteSchedule, 'schedule_id'),
      pause: does(api.pauseSchedule, 'schedule_id'),
      resume: does(api.resumeSchedule, 'schedule_id'),
      run: does(api.runSchedule, 'schedule_id'),
      preview: asks(api.previewSchedule, 'schedule_id'),
      history: lists(api.listScheduleHistory, 'schedule_id'),
      items: lists(api.listScheduleItems, 'schedule_id'),
    },
    /** What is known of the items of many runs. */
    datasets: {
      list: lists(api.listDatasets),
      get: asks(api.getDataset, 'name'),
      put: sends(api.putDataset, 'name'),
      update: sends(api.updateDataset, 'name'),
      delete: asks(api.deleteDataset, 'name'),
      items: lists(api.listDatasetItems, 'name'),
      changes: lists(api.listDatasetChanges, 'name'),
      runs: lists(api.listDatasetRuns, 'name'),
      health: asks(api.getDatasetHealth, 'name'),
    },
    /** Addresses that are called with events. */
    endpoints: {
      list: lists(api.listEndpoints),
      get: does(api.getEndpoint, 'endpoint_id'),
      create: sends(api.createEndpoint),
      update: sends(api.updateEndpoint, 'endpoint_id'),
      delete: does(api.deleteEndpoint, 'endpoint_id'),
      test: does(api.testEndpoint, 'endpoint_id'),
      deliveries: lists(api.listEndpointDeliveries, 'endpoint_id'),
      resend: sends(api.resendEndpointDeliveries, 'endpoint_id'),
    },
    /** Errors of all runs, those that are alike together. */
    errors: {
      list: lists(api.listErrorGroups),
      get: asks(api.getErrorGroup, 'error_id'),
      update: sends(api.updateErrorGroup, 'error_id'),
    },
    /** What the rules have found. */
    alerts: {
      list: lists(api.listAlerts),
      get: does(api.getAlert, 'alert_id'),
      silence: sends(api.silenceAlert, 'alert_id'),
      delete: does(api.deleteAlert, 'alert_id'),
    },
    /** Jobs that nothing could be made of. */
    deadLetters: {
      list: lists(api.listDeadLetters),
      requeue: does(api.requeueDeadLetter, 'letter_id'),
      dismiss: does(api.dismissDeadLetter, 'letter_id'),
    },
    /** Job boards and other sites that are searched. */
    sites: {
      list: lists(api.listSites),
      get: does(api.getSite, 'name'),
      create: sends(api.createSite),
      update: sends(api.updateSite, 'name'),
      delete: does(api.deleteSite, 'name'),
    },
    spiders: { list: asks(api.listSpiders) },
    projects: { list: asks(api.listProjects) },
    nodes: {
      list: does(api.listNodes),
      get: does(api.getNode, 'node'),
      drain: does(api.drainNode, 'node'),
      resume: does(api.resumeNode, 'node'),
      forget: does(api.forgetNode, 'node'),
    },
    keys: { list: does(api.listKeys), create: sends(api.createKey), revoke: does(api.revokeKey, 'key_id') },
  };
}

export type Resources = ReturnType<typeof resources>;
