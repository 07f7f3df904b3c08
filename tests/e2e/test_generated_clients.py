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
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from described import DOCUMENT
from machine import find_program
from sites.server import Site
from stack import ROOT, Stack

# over two hundred packages and half a minute of CPU, so no part of `make test`
pytestmark = [
    pytest.mark.stack,
    pytest.mark.skipif("CLIENTS" not in os.environ, reason="`make clients` brings what generates them"),
]

HERE = ROOT / "tests/generated"
TOOLS = ROOT / ".tools"
EXAMPLE = ROOT / "docs/examples/generated_client.ts"


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


OPERATIONS = [
    Operation(operation["operationId"], operation["tags"][0], operation["responses"])
    for methods in DOCUMENT["paths"].values()
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
    (folder / "openapi.json").write_text(json.dumps(DOCUMENT))
    return folder


# --- openapi-python-client


@pytest.fixture(scope="module")
def python_client(folder: Path) -> Iterator[Path]:
    generate = TOOLS / "openapi-python-client/bin/openapi-python-client"
    arguments = ("generate", "--path", "openapi.json", "--output-path", "generated_client", "--meta", "none")
    # it calls ruff; and what it would leave out is a warning
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    run(generate, *arguments, "--fail-on-warning", cwd=folder, PATH=path)
    sys.path.insert(0, str(folder))
    yield folder / "generated_client"
    sys.path.remove(str(folder))


def test_the_python_client_is_typed(python_client: Path) -> None:
    # its own template hands `*args: object` on to the context managers of httpx2
    configuration = python_client.parent / "mypy.ini"
    configuration.write_text("[mypy]\nstrict = True\n[mypy-generated_client.client]\nignore_errors = True\n")
    mypy = Path(sys.executable).with_name("mypy")
    run(mypy, "--config-file", configuration, python_client.name, cwd=python_client.parent)


def test_the_python_client_has_every_operation_and_every_answer(python_client: Path) -> None:
    modules = {path.stem: path for path in (python_client / "api").rglob("*.py") if path.stem != "__init__"}
    assert modules.keys() == {operation.name for operation in OPERATIONS}
    for name, tag, answers in OPERATIONS:
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
        spec = importlib.util.find_spec(f"generated_client.{name}")
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
        problem = read("0" * 32, client=client)
        assert (type(problem).__name__, problem.error.code.value) == ("Problem", "job_not_found")


# --- @hey-api/openapi-ts


@pytest.fixture(scope="module")
def typescript(folder: Path) -> Path:
    """The folder in which it is compiled, with an example and with `every.ts`, which names each answer of all."""
    packages = TOOLS / "generated-client"
    (folder / "node_modules").symlink_to(packages / "node_modules")
    for path in (HERE / "package.json", HERE / "tsconfig.json", EXAMPLE):
        shutil.copy(path, folder)
    generate = packages / "node_modules/.bin/openapi-ts"
    # with the endings of files, as Node.js wants them
    (folder / "openapi-ts.config.mjs").write_text(
        "export default { input: 'openapi.json', logs: { level: 'error', file: false },"
        " output: { path: 'client', importFileExtension: '.js' } };\n"
    )
    run(generate, cwd=folder)
    (folder / "every.ts").write_text("".join(_every_answer()))
    run(find_program("node"), packages / "node_modules/typescript/bin/tsc", cwd=folder)
    return folder


def _every_answer() -> Iterator[str]:
    """A program that does not compile where an operation is missing, or an answer is or has no type."""
    yield "import * as sdk from './client/sdk.gen.js';\nimport type * as all from './client/types.gen.js';\n"
    yield "type Known<T> = unknown extends T ? false : true;\n"
    for operation in OPERATIONS:
        yield f"sdk.{operation.camel} satisfies Function;\n"
        for status, answer in operation.answers.items():
            of = "Responses" if status < "4" else "Errors"
            # what has no content, such as a redirect, need not be an answer there
            if "content" in answer:
                yield f"true satisfies Known<all.{operation.pascal}{of}[{status}]>;\n"


def test_the_typescript_client_has_every_operation_and_every_answer(typescript: Path) -> None:
    """`every.ts` was compiled; that it would not be otherwise is seen here."""
    text = (typescript / "every.ts").read_text()
    assert text.count("satisfies Function") == len(OPERATIONS) > 130
    wrong = typescript / "wrong.ts"
    wrong.write_text(
        text.replace("sdk.createCrawl ", "sdk.createCrawls ").replace("GetJobResponses[200]", "GetJobResponses[299]")
    )
    tsc = TOOLS / "generated-client/node_modules/typescript/bin/tsc"
    done = subprocess.run(
        [find_program("node"), tsc, "--noEmit"], cwd=typescript, capture_output=True, text=True, check=False
    )
    wrong.unlink()
    assert done.returncode
    assert len(re.findall(r"^wrong\.ts.* error ", done.stdout, re.MULTILINE)) == 2, done.stdout


def test_a_typescript_program_of_fifteen_lines_crawls(typescript: Path, stack: Stack, site: Site) -> None:
    lines = [line for line in EXAMPLE.read_text().splitlines() if line and not line.startswith(("import", "//"))]
    assert len(lines) <= 15
    told = run(find_program("node"), f"built/{EXAMPLE.stem}.js", stack.url, f"{site.url}/tree/1", cwd=typescript)
    assert "Spider opened" in told
    assert f"\n{site.url}/tree/1\n" in told
