"""Clients that others generate from the API's description: they compile, have every operation and every answer, and
crawl.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from browser.chromium import new_tab
from described import document
from machine import find_program
from playwright.async_api import Route
from scissors import Scissors
from scripted_server import stand_in, whole
from sites.server import Site
from stack import ROOT, Stack, wait_until
from stores import free_port

from gateway.web.schemas.stream import EVENT_STREAM

# over two hundred packages and half a minute of CPU, so no part of `make test`
pytestmark = [
    pytest.mark.stack,
    pytest.mark.skipif("CLIENTS" not in os.environ, reason="`make clients` brings what generates them"),
]

TOOLS = ROOT / ".tools"
TYPESCRIPT = TOOLS / "typescript-client/node_modules"
EXAMPLE = ROOT / "docs/examples/crawl.ts"
PYTHON_EXAMPLE = ROOT / "docs/examples/crawl_generated.py"
GENERATED = ROOT / "docs/how-to/use-a-generated-client.md"
#: What the package does by itself, for Node.js's own test runner.
RULES = ROOT / "tests/e2e/typescript"
PAGES = (ROOT / "client/typescript/README.md", ROOT / "docs/how-to/use-from-typescript.md")


class Operation(NamedTuple):
    name: str
    tag: str
    answers: dict[str, Any]

    @property
    def camel(self) -> str:
        first, *rest = self.name.split("_")
        return first + "".join(map(str.capitalize, rest))

    @property
    def pascal(self) -> str:
        return self.camel[0].upper() + self.camel[1:]


def operations() -> list[Operation]:
    return [
        Operation(operation["operationId"], operation["tags"][0], operation["responses"])
        for methods in document()["paths"].values()
        for operation in methods.values()
    ]


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    environment = {**os.environ, **variables}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{done.stdout[-5000:]}\n{done.stderr[-5000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated")
    (folder / "openapi.json").write_text(json.dumps(document()))
    return folder


# --- openapi-python-client


@pytest.fixture(scope="module")
def python_client(folder: Path) -> Iterator[Path]:
    generate = TOOLS / "openapi-python-client/bin/openapi-python-client"
    (folder / "generator.yaml").write_text("package_name_override: discoverybot_api\n")
    arguments = ("generate", "--path", "openapi.json", "--meta", "none", "--config", "generator.yaml")
    # it calls ruff; and what it would leave out is a warning
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    run(generate, *arguments, "--fail-on-warning", cwd=folder, PATH=path)
    # it is made for httpx, which nothing of ours needs any more
    for name in ("httpx", "httpcore"):
        (installed,) = (TOOLS / "openapi-python-client").glob(f"lib/python*/site-packages/{name}")
        (folder / name).symlink_to(installed)
    sys.path.insert(0, str(folder))
    yield folder / "discoverybot_api"
    sys.path.remove(str(folder))


def test_the_python_client_is_typed(python_client: Path) -> None:
    # its own template hands `*args: object` on to the context managers of httpx2
    configuration = python_client.parent / "mypy.ini"
    others = "discoverybot_api.client,httpx.*,httpcore.*"
    configuration.write_text(f"[mypy]\nstrict = True\n[mypy-{others}]\nignore_errors = True\n")
    mypy = Path(sys.executable).with_name("mypy")
    shutil.copy(PYTHON_EXAMPLE, python_client.parent)
    (block,) = re.findall(r"```python\n(.*?)```", GENERATED.read_text(), re.DOTALL)
    (python_client.parent / "block.py").write_text(block)
    names = (python_client.name, PYTHON_EXAMPLE.name, "block.py")
    run(mypy, "--config-file", configuration, *names, cwd=python_client.parent)


def test_the_python_client_has_every_operation_and_every_answer(python_client: Path) -> None:
    modules = {path.stem: path for path in (python_client / "api").rglob("*.py") if path.stem != "__init__"}
    assert modules.keys() == {operation.name for operation in operations()}
    for name, tag, answers in operations():
        assert modules[name].parent.name == tag
        text = modules[name].read_text()
        assert set(re.findall(r"response\.status_code == (\d+)", text)) == answers.keys(), name
        parse = next(node for node in ast.parse(text).body if getattr(node, "name", "") == "_parse_response")
        assert isinstance(parse, ast.FunctionDef)
        assert parse.returns is not None
        returned = ast.unparse(parse.returns)
        for status, answer in answers.items():
            schema = answer.get("content", {}).get("application/json", {}).get("schema", {})
            for reference in re.findall(r"#/components/schemas/(\w+)", str(schema.get("oneOf", schema.get("$ref")))):
                assert re.search(rf"\b{reference}\b", returned), (name, status, reference)


def test_the_python_client_reads_what_is_answered(python_client: Path, stack: Stack, site: Site) -> None:
    def module(name: str) -> Any:
        spec = importlib.util.find_spec(f"discoverybot_api.{name}")
        assert spec is not None
        return importlib.import_module(spec.name)

    crawl = module("models.crawl_request").CrawlRequest(
        spider="seo", start_urls=[f"{site.url}/tree/1"], user_id="ada"
    )
    with module("client").Client(base_url=stack.url) as client:
        receipt = module("api.crawls.create_crawl").sync(client=client, body=crawl)
        read = module("api.jobs.get_job").sync
        job = read(receipt.job_id, client=client, wait=30)
        assert (type(job).__name__, job.status.value) == ("JobDetail", "finished")
        schedule = module("models.crawl_request").CrawlRequest(
            spider="seo", start_urls=[site.url], user_id="ada", interval="@daily"
        )
        planned = module("api.crawls.create_crawl").sync(client=client, body=schedule)
        assert type(read(planned.job_id, client=client)).__name__ == "ScheduleJobView"
        # what nobody has named is not sent, so it stays as it is
        update = module("models.schedule_update").ScheduleUpdate(interval="@hourly")
        assert update.to_dict() == {"interval": "@hourly"}
        problem = read("0" * 32, client=client)
        assert (type(problem).__name__, problem.error.code.value) == ("Problem", "job_not_found")
        later = {**problem.to_dict(), "error": {**problem.error.to_dict(), "code": "of_a_later_release"}}
        assert type(problem).from_dict(later).error.code == "of_a_later_release"


def test_a_program_with_the_python_client_crawls(python_client: Path, stack: Stack, site: Site) -> None:
    python = TOOLS / "openapi-python-client/bin/python"
    folder = str(python_client.parent)
    told = run(python, PYTHON_EXAMPLE, stack.url, f"{site.url}/tree/2", cwd=python_client.parent, PYTHONPATH=folder)
    assert "Spider opened" in told
    assert f"\n{site.url}/tree/2\n" in told


def test_an_answer_that_is_not_the_gateways_fails_as_the_guide_says(python_client: Path) -> None:
    read = importlib.import_module("discoverybot_api.api.jobs.get_job").sync
    unexpected = importlib.import_module("discoverybot_api.errors").UnexpectedStatus
    page = b"<html><h1>not here</h1></html>"
    other = {"message": "proxy"}
    for answer, error in (
        (whole(page, 404), ValueError),
        (whole(other, 503), KeyError),
        (whole({}), KeyError),
        (whole(page, 502), unexpected),
    ):
        with stand_in(answer) as server:
            client = importlib.import_module("discoverybot_api.client").Client(
                base_url=server.url, raise_on_unexpected_status=True
            )
            with client, pytest.raises(error):
                read("0" * 32, client=client)
    with stand_in(whole(page, 503)) as server:
        python = TOOLS / "openapi-python-client/bin/python"
        done = subprocess.run(
            [python, PYTHON_EXAMPLE, server.url, "http://127.0.0.1"],
            cwd=python_client.parent,
            env={**os.environ, "PYTHONPATH": str(python_client.parent)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.stderr.startswith("no answer of a gateway: JSONDecodeError")


# --- our own package for TypeScript, of what @hey-api/openapi-ts generates and what is in client/typescript


@pytest.fixture(scope="module")
def typescript(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stranger's folder with the package, the example, and `every.ts`, which names each answer of all; compiled."""
    folder = tmp_path_factory.mktemp("typescript")
    with tarfile.open(next((ROOT / "dist/npm").glob(f"discoverybot-client-{version('discoverybot')}.tgz"))) as packed:
        packed.extractall(folder / "node_modules", filter="data")
    (folder / "node_modules/package").rename(folder / "node_modules/discoverybot-client")
    (folder / "node_modules/@types").symlink_to(TYPESCRIPT / "@types")
    options = json.loads((ROOT / "client/typescript/tsconfig.json").read_text())["compilerOptions"]
    options |= {"types": ["node"], "outDir": "built", "declaration": False, "declarationMap": False}
    # as strict as a program may be: a limit that is `undefined` is no mistake
    options |= {"exactOptionalPropertyTypes": True}
    (folder / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "include": ["*.ts"]}))
    (folder / "package.json").write_text('{"type": "module"}')
    shutil.copy(EXAMPLE, folder)
    blocks = [block for page in PAGES for block in re.findall(r"```ts\n(.*?)```", page.read_text(), re.DOTALL)]
    for number, block in enumerate(blocks):
        (folder / f"block{number}.ts").write_text(block)
    (folder / "every.ts").write_text("".join(_every_answer()))
    run(find_program("node"), TYPESCRIPT / "typescript/bin/tsc", cwd=folder)
    return folder


def _packed() -> list[Operation]:
    """The operations that the package has."""
    return [operation for operation in operations() if operation.tag != "firecrawl"]


#: What our methods return.
TYPED = """
declare const bot: sdk.DiscoveryBot;
for await (const { name } of bot.nodes.list({ limit: 3 })) name satisfies string;
for await (const { key_id } of bot.keys.list()) key_id satisfies string;
for await (const { rule_id } of bot.alertRules.list({ user_id: 'ada' })) rule_id satisfies string;
for await (const { name } of bot.spiders.list({ pageSize: 3 })) name satisfies string;
for await (const { url } of bot.jobItems<{ url: string }>('1')) url satisfies string;
(await sdk.downloadDatasetItems({ client: bot, path: { name: 'p' }, query: { format: 'csv' } })) satisfies Blob;
(await bot.datasets.exportChanges('p', 'csv', { since: 3, timeout: 9 })) satisfies ReadableStream<Uint8Array>;
// @ts-expect-error: requests are no tables for spreadsheets
bot.jobs.exportRequests('1', 'xlsx');
for await (const { user_id } of bot.platform.audit()) user_id satisfies string | null;
(await bot.jobs.get('1', { wait: 3 })) satisfies all.JobDetail;
// @ts-expect-error: what the generator makes requests with is not shown
bot.interceptors;
// @ts-expect-error: a schedule has no end
bot.crawl({ spider: 'seo', interval: '@daily' });
// editors complete it
'backoff' satisfies Extract<all.JobStatusView['waiting_reason'], all.WaitingReason>;
bot.jobs.list() satisfies all.Pages<all.JobSummary>;
// @ts-expect-error: it has no pages
bot.nodes.list({ pageSize: 3 });
"""


def _every_answer() -> Iterator[str]:
    """A program that does not compile where an operation is missing, or an answer is or has no type."""
    yield "import * as sdk from 'discoverybot-client';\nimport type * as all from 'discoverybot-client';\n"
    yield "type Known<T> = unknown extends T ? false : true;\n"
    yield "declare const limit: number | undefined;\n"
    yield "({ timeout: limit, retries: limit }) satisfies all.CallOptions;\n"
    yield "({ timeout: limit, patience: limit }) satisfies all.FollowOptions;\n"
    yield TYPED
    for operation in _packed():
        yield f"sdk.{operation.camel} satisfies Function;\n"
        for status, answer in operation.answers.items():
            of = "Responses" if status < "4" else "Errors"
            # what has no content, such as a redirect, need not be an answer there, and streams have no type
            if "content" in answer and answer["content"].keys() != {EVENT_STREAM}:
                yield f"true satisfies Known<all.{operation.pascal}{of}[{status}]>;\n"


def test_the_typescript_client_has_every_operation_and_every_answer(typescript: Path) -> None:
    """`every.ts` was compiled; that it would not be otherwise is seen here."""
    text = (typescript / "every.ts").read_text()
    assert text.count("satisfies Function") == len(_packed()) > 130
    api = (typescript / "node_modules/discoverybot-client/dist/api/sdk.gen.d.ts").read_text()
    assert set(re.findall(r"export declare const (\w+):", api)) == {operation.camel for operation in _packed()}
    methods = (typescript / "node_modules/discoverybot-client/dist/resources.d.ts").read_text()
    # with documentation for editors, and an answer that says what it is
    assert re.search(
        r"/\*\* Pauses a job\. .*\n(?: +\*.*\n)+ +pause\(jobId: .*: Promise<api\.JobStatusView>;", methods
    )
    # in words for who calls methods, and not the API
    assert not re.findall(r"`(?:GET|POST|PUT|PATCH|DELETE) |`next` as|without `limit`", methods, re.IGNORECASE)
    assert "@throws NotFoundError, ConflictError */" in methods
    wrong = typescript / "wrong.ts"
    wrong.write_text(
        text.replace("sdk.createCrawl ", "sdk.createCrawls ").replace("GetJobResponses[200]", "GetJobResponses[299]")
        + "declare const client: sdk.DiscoveryBot;\n"
        + "for await (const one of client.followJob('')) if (one.event === 'progress') one.data.msg;\n"
    )
    tsc = TYPESCRIPT / "typescript/bin/tsc"
    done = subprocess.run(
        [find_program("node"), tsc, "--noEmit"], cwd=typescript, capture_output=True, text=True, check=False
    )
    wrong.unlink()
    assert done.returncode
    assert len(re.findall(r"^wrong\.ts.* error ", done.stdout, re.MULTILINE)) == 3, done.stdout


#: What a stream's data is not, what a file is, and what an egg may come with.
TYPES = """
import { deployVersion, downloadJobItems, followJobLog } from './discoverybot/sdk.gen.js';
for await (const data of (await followJobLog({ path: { job_id: '' } })).stream) {
  // @ts-expect-error: it is no text, but an object
  data.slice(0, 9);
}
const { data: file } = await downloadJobItems({ path: { job_id: '' }, query: { format: 'csv' } });
file satisfies Blob | undefined;
// @ts-expect-error: it is no object of JSON
file?.items;
const body = { egg: new Blob(['egg']), requirements: 'lxml' };
await deployVersion({ path: { project: 'shop' }, query: { version: '1' }, body });
"""


@pytest.mark.parametrize(("module", "resolution"), [("esnext", "bundler"), ("nodenext", "nodenext")])
def test_a_program_with_a_typescript_client_that_users_generate_compiles(
    tmp_path: Path, folder: Path, module: str, resolution: str
) -> None:
    options = {"strict": True, "module": module, "moduleResolution": resolution, "target": "es2022", "types": []}
    options |= {"lib": ["es2023", "dom", "dom.iterable"], "noEmit": True}
    (tmp_path / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "include": ["*.ts"]}))
    (tmp_path / "package.json").write_text('{"type": "module"}')
    command = TYPESCRIPT / "@hey-api/openapi-ts/bin/run.js"
    run(
        find_program("node"),
        command,
        "--input",
        folder / "openapi.json",
        "--output",
        "discoverybot",
        "--no-log-file",
        cwd=tmp_path,
    )
    (block,) = re.findall(r"```ts\n(.*?)```", GENERATED.read_text(), re.DOTALL)
    (tmp_path / "block.ts").write_text(block)
    (tmp_path / "types.ts").write_text(TYPES)
    run(find_program("node"), TYPESCRIPT / "typescript/bin/tsc", cwd=tmp_path)


def test_the_typescript_client_keeps_its_rules(typescript: Path) -> None:
    shutil.copytree(RULES, typescript / "rules")
    run(find_program("node"), "--test", *map(str, sorted((typescript / "rules").glob("*.test.mjs"))), cwd=typescript)


def test_the_typescript_client_needs_only_what_browsers_have(typescript: Path) -> None:
    package = typescript / "node_modules/discoverybot-client"
    text = "".join(path.read_text() for path in (package / "dist").rglob("*.js"))
    assert not re.findall(r"""\bfrom ['"](?!\.)|\bnode:|\b(?:process|Buffer|require|__dirname)\b[.(]""", text)
    described = json.loads((package / "package.json").read_text())
    assert "dependencies" not in described
    # bundlers leave out what is not imported
    assert described["sideEffects"] is False


IN_A_BROWSER = """async site => {
  const { DiscoveryBot, each, listJobs, verify } = await import('/client/index.js');
  const client = new DiscoveryBot(location.origin);
  const crawl = { user_id: 'me', spider: 'seo', start_urls: [site], tags: ['browser'], ignore_cache: true };
  const { job_id } = await client.startCrawl(crawl);
  const names = new Set();
  for await (const event of client.followJob(job_id)) names.add(event.event);
  const { status } = await client.waitForJob(job_id, { timeout: 60 });
  const urls = [];
  for await (const item of client.jobItems(job_id)) urls.push(item.url);
  const jobs = [];
  for await (const job of each(listJobs, { client, query: { tag: 'browser' } })) jobs.push(job.job_id === job_id);
  const file = await new Response(await client.exportItems(job_id, 'jsonl', { fields: 'url' })).text();
  const refused = await verify({}, '{}', 'whsec_MfKQ').catch(error => error.name);
  return { names: [...names], status, urls, jobs, file, refused };
}"""


async def test_the_typescript_client_crawls_in_a_browser(typescript: Path, stack: Stack, site: Site) -> None:
    dist = typescript / "node_modules/discoverybot-client/dist"

    async def serve(route: Route) -> None:
        if name := route.request.url.partition("/client/")[2]:
            await route.fulfill(path=dist / name, content_type="text/javascript")
        else:  # a page of the gateway's origin, but without its policy, which lets nothing be imported
            await route.fulfill(body="<!doctype html>", content_type="text/html")

    async with new_tab() as tab:
        await tab.page.route("**/client/**", serve)
        await tab.page.goto(f"{stack.url}/client/")
        done = await tab.page.evaluate(IN_A_BROWSER, f"{site.url}/tree/1")
    assert {"log", "status", "end"} <= set(done["names"])
    assert (done["status"], done["jobs"], done["refused"]) == ("finished", [True], "WebhookError")
    assert f"{site.url}/tree/1" in done["urls"]
    assert [json.loads(line)["url"] for line in done["file"].splitlines()] == done["urls"]
    assert not tab.complaints


def test_a_typescript_program_of_fifteen_lines_crawls(typescript: Path, stack: Stack, site: Site) -> None:
    lines = [line for line in EXAMPLE.read_text().splitlines() if line and not line.startswith(("import", "//"))]
    assert len(lines) <= 15
    told = run(find_program("node"), f"built/{EXAMPLE.stem}.js", stack.url, f"{site.url}/tree/1", cwd=typescript)
    assert "Spider opened" in told
    assert f"\n{site.url}/tree/1\n" in told


#: Pauses are a tenth of what they should be.
HASTY = """
import * as sdk from 'discoverybot-client';
const later = globalThis.setTimeout, pauses = [];
globalThis.setTimeout = (act, time, ...given) => { pauses.push(time); return later(act, time / 10, ...given); };
const [gateway, ...given] = process.argv.slice(2);
const client = new sdk.DiscoveryBot(gateway);
"""
FOLLOW = """
const [job, patience] = given, events = [];
try {
  for await (const event of client.followJob(job, { patience: Number(patience) })) events.push(event);
} catch (error) {
  events.push({ event: error.name, data: error.code });
}
console.log(JSON.stringify(events));
"""


def node(folder: Path, program: str, *arguments: str) -> Any:
    (folder / "program.mjs").write_text(HASTY + program)
    return json.loads(run(find_program("node"), "program.mjs", *arguments, cwd=folder))


def follow(folder: Path, url: str, job_id: str, patience: str = "60") -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = node(folder, FOLLOW, url, job_id, patience)
    return events


def test_a_log_is_followed_in_typescript_over_twenty_cuts(typescript: Path, stack: Stack, site: Site) -> None:
    site.delay = 0.05
    site.hold()
    job_id = stack.crawl(f"{site.url}/tree/60")
    scissors = Scissors.before(stack.url)
    scissors.budgets = [1200] * 20
    with scissors.running(), ThreadPoolExecutor() as threads:
        following = threads.submit(follow, typescript, scissors.url(stack.url), job_id)
        # however long node takes to begin, it sees how the crawl goes on
        wait_until(lambda: len(scissors.budgets) < 20, what="the follower")
        site.release()
        events = following.result()
    lines = [event for event in events if event["event"] == "log"]
    log = stack.log(job_id).decode().splitlines()
    assert len({line["id"] for line in lines}) == len(lines) == len(log)
    assert all(text.endswith(line["data"]["msg"]) for text, line in zip(log, lines, strict=True))
    assert [event["event"] for event in events].count("dropped") == 20
    assert (events[-1]["event"], events[-1]["data"]["status"], scissors.budgets) == ("end", "finished", [])
    assert {"status", "progress"} < {event["event"] for event in events}


def test_a_refusal_has_its_code_and_patience_ends(typescript: Path, stack: Stack) -> None:
    refused = [{"event": "NotFoundError", "data": "job_not_found"}]
    assert follow(typescript, stack.url, "0" * 32) == refused
    away = follow(typescript, f"http://127.0.0.1:{free_port()}", "0" * 32, "0.5")
    assert [event["event"] for event in away][-1] == "GatewayUnreachableError"
    assert {event["event"] for event in away[:-1]} == {"dropped"}


CRAWL = """
const [site, tag] = given;
const body = { user_id: 'me', spider: 'seo', start_urls: [site], tags: [tag], ignore_cache: true };
const receipt = await client.startCrawl(body);
const job = await client.waitForJob(receipt.job_id, { timeout: 60 });
const items = [];
for await (const item of client.jobItems(job.job_id, { pageSize: 10 })) items.push(item);
console.log(JSON.stringify({ id: receipt.job_id, status: job.status, urls: items.map((item) => item.url) }));
"""


def test_a_typescript_crawl_whose_answers_are_lost_is_one_job_with_all_its_items(
    typescript: Path, stack: Stack, site: Site
) -> None:
    scissors = Scissors.before(stack.url)
    # from the last on: of the crawl, of its end, and of pages of items
    scissors.budgets = [500, 40, 600, 0, 40, 10]
    with scissors.running():
        done = node(typescript, CRAWL, scissors.url(stack.url), f"{site.url}/tree/40", "lost-answers")
    listed = stack.http.get(f"{stack.url}/jobs", params={"tag": "lost-answers"}).json()["jobs"]
    assert ([job["job_id"] for job in listed], scissors.budgets) == ([done["id"]], [])
    assert done["status"] == "finished"
    assert done["urls"] == [item["url"] for item in stack.items(done["id"])]
    assert len(done["urls"]) > 40


WAIT = """
const [job, timeout] = given;
try {
  await client.waitForJob(job, { timeout: Number(timeout) });
} catch (error) {
  const { name, code, job, cause } = error;
  console.log(JSON.stringify({ name, code, status: job?.status, cause: cause?.name }));
}
"""


def test_a_wait_in_typescript_has_one_deadline(typescript: Path, stack: Stack, site: Site) -> None:
    site.hold()
    job_id = stack.crawl(f"{site.url}/tree/2", ignore_cache=True)
    wait_until(lambda: stack.status(job_id)["status"] == "running", what="the crawl")
    late = node(typescript, WAIT, stack.url, job_id, "5")
    assert (late["name"], late["status"]) == ("WaitTimeoutError", "running")
    site.release()
    away = node(typescript, WAIT, f"http://127.0.0.1:{free_port()}", job_id, "0.5")
    assert away == {"name": "WaitTimeoutError", "cause": "GatewayUnreachableError"}
    assert node(typescript, WAIT, stack.url, "0" * 32, "60") == {"name": "NotFoundError", "code": "job_not_found"}


TWO = """
const [second] = given;
const other = new sdk.DiscoveryBot(second, { key: 'db_second' });
await other.startCrawl({ spider: 'seo' });
await other.waitForJob('1');
for await (const item of other.jobItems('1')) item.url;
for await (const event of other.followJob('1')) event.id;
await other.cancel('1');
await client.cancel('2');
try {
  await sdk.getJob({ client: other, path: { job_id: '3' } });
} catch ({ name, code, field, requestId }) {
  console.log(JSON.stringify({ name, code, field, requestId }));
}
"""


def test_a_typescript_program_has_two_gateways(typescript: Path) -> None:
    told = partial(whole, Content_Type="application/json")
    items = {"items": [{"url": "http://one"}], "next": None}
    error = {"code": "of_a_later_release", "message": "no", "detail": {"field": "depth"}}
    refused = whole({"error": error, "request_id": "r1"}, 422)
    ended = told({"kind": "job", "job_id": "1", "status": "finished"})
    answers = (told({"job_id": "1"}), ended, told(items), whole(b"", 204), whole({}, 503), ended, refused)
    cancelled = told({"kind": "job", "job_id": "2", "status": "cancelled"})
    with stand_in(cancelled) as first, stand_in(*answers) as second:
        shown = node(typescript, TWO, first.url, second.url)
    assert shown == {"name": "InvalidRequestError", "code": "of_a_later_release", "field": "depth", "requestId": "r1"}
    assert [str(asked) for asked in first.asked] == ["POST /jobs/2/cancel"]
    assert "authorization" not in first.asked[0].headers
    calls = [str(asked).partition("?")[0] for asked in second.asked]
    read = ["POST /crawl", "GET /jobs/1", "GET /jobs/1/items", "GET /jobs/1/logs"]
    # the first answer to it was that the gateway is away
    assert calls == [*read, "POST /jobs/1/cancel", "POST /jobs/1/cancel", "GET /jobs/3"]
    assert {asked.headers["authorization"] for asked in second.asked} == {"Bearer db_second"}


START = """
const [timeout] = given;
try {
  const { job_id } = await client.startCrawl({ spider: 'seo' }, { timeout: Number(timeout) });
  console.log(JSON.stringify({ job_id, pauses: pauses.filter((time) => time >= 1000 && time < 30000) }));
} catch ({ name, status, retryAfter }) {
  console.log(JSON.stringify({ name, status, retryAfter }));
}
"""


def test_a_typescript_crawl_is_asked_for_again_when_the_gateway_says_so(typescript: Path) -> None:
    busy, away = whole({}, 429, retry_after="7"), whole({}, 503, retry_after="3")
    receipt = whole({"job_id": "1"}, Content_Type="application/json")
    with stand_in(busy, away, receipt) as server:
        assert node(typescript, START, server.url, "60") == {"job_id": "1", "pauses": [7000, 3000]}
        keys = [asked.headers["idempotency-key"] for asked in server.asked]
        assert (len(keys), len(set(keys))) == (3, 1)
    # the pause would be over too late
    with stand_in(busy, receipt) as server:
        refused = {"name": "TooManyRequestsError", "status": 429, "retryAfter": 7}
        assert (node(typescript, START, server.url, "5"), len(server.asked)) == (refused, 1)
