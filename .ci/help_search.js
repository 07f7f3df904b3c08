// Ranks what the search of the documentation finds. The site's own worker wants every word of a question to be in a
// section, and knows no page that is more useful than another. `.ci/help_search.py` puts this before the worker.
//
// The console's palette (Ctrl-K) asks this worker, too; what it adds to the index are acts.
//
// A question is what any of its words find: words that are in no section say nothing, rare words say more than
// frequent ones, headings more than text, and guides more than generated pages.

/** Words that beginners use for ours. */
const SAME = {
  excel: ["xlsx", "spreadsheet"], spreadsheet: ["xlsx", "excel"], sheet: ["xlsx"], notification: ["slack", "mail", "told"],
  notify: ["alert", "told"], email: ["mail"], permission: ["key", "scope"], access: ["key"], password: ["key"],
  login: ["key", "sign"], user: ["key"], colleague: ["read_all"], share: ["colleague"], recurring: ["schedule"],
  cron: ["schedule"], daily: ["schedule", "morning"], every: ["schedule"], throttle: ["politeness", "delay"],
  slow: ["delay"], speed: ["delay", "concurrency"], block: ["forbidden"], stop: ["cancel"], kill: ["cancel"],
  abort: ["cancel"], javascript: ["render"], scrape: ["crawl"], timeout: ["limit"], delete: ["retention"],
  install: ["quickstart"], begin: ["quickstart"], started: ["quickstart"], start: ["quickstart"], broken: ["fail"],
  backup: ["back"], forgot: ["lost"], forgotten: ["lost"], localhost: ["address"], empty: ["nothing"], restore: ["back"], proxies: ["proxy"], robot: ["robots"], price: ["changes"], diff: ["changes"],
}; // prettier-ignore
/** How useful a page is beside others. The first that fits counts. */
const USEFUL = [
  [/^act:/, 1.3],
  [/^docs\/reference\/python-client/, 0.05],
  [/^(CHANGELOG|CONTRIBUTING|docs\/(decisions|architecture|figures|comparison|reliability))/, 0.4],
  [/^docs\/(how-to\/(move|upgrade|use-a-)|glossary|runbooks|examples)/, 0.7],
  [/^docs\/(how-to|faq|quickstart|tutorial)/, 1.3],
];
/** How much a word in a heading, and in the names of the pages above, counts; in the text it is at most 1. */
const IN_TITLE = 2.5;
const IN_PATH = 0.8;
/** Results at most, and how good they are beside the best one at least. */
const MOST = 40;
const LEAST = 0.1;

let separator = /\s+/u;
/** By the stem of a word: by the number of a section, how much the word counts there. */
const postings = new Map();
/** By the number of a section: how useful its page is. */
const useful = [];

const plain = (text) => text.replace(/<[^>]*>/g, " ").replace(/&[a-z#0-9]+;/g, " ");
const wordsOf = (text) => text.normalize("NFKD").toLowerCase().split(separator).filter(Boolean).map(stem);

/** What words of one kind have in common; always their beginning. */
function stem(word) {
  for (const end of ["ations", "ation", "ings", "ing", "ies", "ied", "ed", "es", "s", "e", "y"])
    if (word.endsWith(end) && word.length - end.length >= 4) return word.slice(0, -end.length);
  return word.length > 3 && word.endsWith("s") && !word.endsWith("ss") ? word.slice(0, -1) : word;
}

function learn({ config, items }) {
  separator = new RegExp(config.separator, "u");
  const texts = items.map((one) => wordsOf(plain(one.text ?? "")));
  const usual = texts.reduce((sum, one) => sum + one.length, 0) / Math.max(1, texts.length);
  items.forEach((one, id) => {
    useful[id] = USEFUL.find(([pages]) => pages.test(one.location))?.[1] ?? 1;
    const times = new Map();
    for (const word of texts[id]) times.set(word, (times.get(word) ?? 0) + 1);
    for (const [word, count] of times) add(word, id, count / (count + 0.5 + texts[id].length / usual));
    for (const word of new Set(wordsOf(plain(one.title ?? "")))) add(word, id, IN_TITLE);
    for (const word of new Set((one.path ?? []).flatMap((part) => wordsOf(plain(part))))) add(word, id, IN_PATH);
  });
}

function add(word, id, weight) {
  if (!postings.has(word)) postings.set(word, new Map());
  const of = postings.get(word);
  of.set(id, (of.get(id) ?? 0) + weight);
}

/** The stems that a word of a question stands for, each with how sure that is. */
function meant(word) {
  const found = new Map();
  const take = (one, sure) => postings.has(one) && found.set(one, Math.max(sure, found.get(one) ?? 0));
  if (word.length >= 3) for (const one of postings.keys()) if (one.startsWith(word)) take(one, 0.4);
  take(word, 1);
  if (!found.size && word.length >= 5) for (const one of postings.keys()) if (isNear(one, word)) take(one, 0.6);
  for (const [name, others] of Object.entries(SAME))
    if (stem(name) === word) for (const one of others) take(stem(one), 0.7);
  return found;
}

/** Whether one letter is wrong, missing, too much or in the place of its neighbour. */
function isNear(one, other) {
  if (Math.abs(one.length - other.length) > 1) return false;
  let start = 0;
  while (start < one.length && one[start] === other[start]) start++;
  const [rest, others] = [one.slice(start), other.slice(start)];
  const swapped = rest.length > 1 && rest[1] + rest[0] + rest.slice(2) === others;
  return swapped || [rest.slice(1), rest].includes(others.slice(1)) || rest.slice(1) === others;
}

/** By the number of a section: how well it answers. Empty if no word is known. */
function scores(stems) {
  const all = new Map();
  for (const stands of stems) {
    const best = new Map();
    for (const [one, sure] of stands) {
      const rare = Math.log(1 + useful.length / postings.get(one).size);
      for (const [id, weight] of postings.get(one)) best.set(id, Math.max(best.get(id) ?? 0, sure * rare * weight));
    }
    for (const [id, score] of best) {
      const [sum, words] = all.get(id) ?? [0, 0];
      all.set(id, [sum + score, words + 1]);
    }
  }
  return new Map([...all].map(([id, [sum, words]]) => [id, (sum * words * useful[id]) / stems.length]));
}

/** What the worker answers to a question: `search` is its own function, which still says what to highlight. The palette
 *  compares by `score`. */
self.ranked = (search, question) => {
  const words = typeof question.input === "string" ? wordsOf(question.input) : [];
  const stems = [...new Set(words)].map(meant).filter((one) => one.size);
  if (!stems.length) return search({ type: "text", data: question });
  const terms = [...new Set(stems.flatMap((one) => [...one.keys()]))];
  const operands = terms.map((data) => ({ type: "value", data: { field: "*", value: { type: "prefix", data } } }));
  const input = { type: "operator", data: { operator: "or", operands } };
  const answer = search({ type: "text", data: { ...question, input } });
  const found = scores(stems);
  const score = (one) => found.get(one.id) ?? 0;
  const sorted = answer.data.items.filter(score).sort((one, other) => score(other) - score(one));
  const best = sorted.filter((one) => score(one) >= LEAST * score(sorted[0])).slice(0, MOST);
  const items = best.map((one) => ({ ...one, score: score(one) }));
  return { ...answer, data: { ...answer.data, items, pagination: { total: items.length } } };
};
self.addEventListener("message", ({ data }) => data.type === 0 && learn(data.data));
