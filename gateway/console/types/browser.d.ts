// Types that the pages use besides those of the DOM.

interface Window {
  htmx: {
    ajax(
      method: string,
      address: string,
      options: { target: string; select: string; swap: string; push?: string; selectOOB?: string },
    ): Promise<void>;
  };
}

/** htmx's events; `ctx` is one exchange with the server. */
interface HtmxEvent
  extends CustomEvent<{ ctx: { request: { headers: Record<string, string> }; response: Response } }> {}

/** A key that was just made. */
interface MadeKey {
  key: string;
  user_id: string;
  scopes: string[];
  projects: string[];
}

interface DocumentEventMap {
  "htmx:config:request": HtmxEvent;
  "htmx:after:swap": HtmxEvent;
  "htmx:response:error": HtmxEvent;
  "htmx:error": HtmxEvent;
  "scatter:brush": CustomEvent<{ since: Date; until: Date }>;
  deployed: CustomEvent<{ project: string; dependencies_url?: string }>;
  "key-made": CustomEvent<MadeKey>;
}

interface HTMLElementEventMap {
  "crawl-asked": CustomEvent<{ schedule_id?: string; job_id: string; cached?: boolean }>;
}

/** Integers beyond 53 bits: newer than the compiler's own types. */
interface JSON {
  parse(
    text: string,
    reviver: (this: unknown, key: string, value: unknown, context: { source: string }) => unknown,
  ): unknown;
  rawJSON?(text: string): RawJSON;
  isRawJSON?(value: unknown): value is RawJSON;
}
interface RawJSON {
  readonly rawJSON: string;
}

type Attribute = string | number | boolean | null | undefined;
type Child = Node | string | null | undefined | false;
type Handlers = { [K in keyof HTMLElementEventMap as `on${K}`]?: (event: HTMLElementEventMap[K]) => unknown };

/** For `h`: null and false leave an attribute out, true has it without a value; `onclick` and such listen. */
interface Attributes extends Handlers {
  [name: string]: Attribute | ((event: never) => unknown);
}

/** A field of a form. */
type Field = HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement;
