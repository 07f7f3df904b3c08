"""What the search of the documentation finds for the questions of somebody who has just begun."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest
from machine import missing

from gateway.console.help import ARCHIVE

#: A question, and the pages of which one has to be among the first three.
QUESTIONS = {
    "export to excel": ["reference/http-api", "faq", "reference/exports"],
    "slack notification": ["reference/webhooks", "faq"],
    "read only access": ["reference/keys", "faq"],
    "every morning at nine": ["how-to/crawl-every-morning", "reference/schedules"],
    "let a colleague read": ["reference/keys", "faq"],
    "how do I stop a crawl": ["faq"],
    "am I told when a crawl ends": ["faq", "reference/webhooks"],
    "crawl a page with javascript": ["how-to/crawl-javascript-pages"],
    "deploy my scrapy project": ["how-to/deploy-your-own-spiders", "tutorial"],
    "what changed since yesterday": ["how-to/follow-what-changes", "reference/datasets", "faq"],
    "download csv": ["reference/http-api", "faq"],
    "use a proxy": ["reference/egress"],
    "install on a server": ["how-to/run-on-a-server"],
    "backup the database": ["how-to/back-up-and-restore"],
    "environment variables secrets": ["reference/environment"],
    "my job is stuck pending": ["troubleshooting", "reference/queue"],
    "run a crawl on a schedule": ["how-to/crawl-every-morning", "reference/schedules", "faq"],
    "how long is data kept": ["reference/retention", "faq"],
    "python client example": ["how-to/use-from-python"],
    "crawl slower, be polite": ["reference/politeness", "how-to/add-a-job-board"],
    "why did my crawl fail": ["troubleshooting"],
    "slow pages": ["faq", "reference/http-api"],
    "get an email when a crawl fails": ["faq"],
    "crawl localhost refused": ["faq", "reference/egress"],
    "forgot my key": ["faq", "reference/keys"],
    "what does partial mean": ["reference/outcomes", "faq"],
    "delete old data": ["faq", "reference/retention"],
    "my spider found nothing": ["faq", "troubleshooting"],
    "robots.txt": ["reference/politeness", "troubleshooting", "faq"],
}

#: Asks the worker as the page does: it learns the index, then answers one question after the other.
ASK = """
const told = [];
globalThis.self = globalThis;
self.postMessage = (message) => told.push(message);
let learn = () => {};
self.addEventListener = (_, listener) => { learn = listener; };
const { readFileSync } = require("node:fs");
const [worker, index, questions] = process.argv.slice(1);
(0, eval)(readFileSync(worker, "utf8"));
const data = JSON.parse(readFileSync(index, "utf8"));
const send = async (message) => {
  const before = told.length;
  learn({ data: message });
  self.onmessage({ data: message });
  while (told.length === before) await new Promise((resume) => setImmediate(resume));
  return told.at(-1);
};
(async () => {
  await send({ type: 0, data });
  const answers = [];
  for (const input of JSON.parse(questions)) {
    const { data: found } = await send({ type: 2, data: { input } });
    answers.push(found.items.map((one) => data.items[one.id].location));
  }
  console.log(JSON.stringify(answers));
})();
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """By the question: the addresses of the sections, the best first."""
    node = shutil.which("node")
    if not ARCHIVE.exists() or node is None:
        missing("the documentation is not built (make docs), or there is no Node.js")
    folder = tmp_path_factory.mktemp("site")
    with ZipFile(ARCHIVE) as site:
        site.extractall(folder)
    (worker,) = (folder / "assets/javascripts/workers").glob("search.*.js")
    asked = [*QUESTIONS, "xyzzyplugh", "client"]
    command = [str(node), "-e", ASK, str(worker), str(folder / "search.json"), json.dumps(asked)]
    told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    return dict(zip(asked, json.loads(told), strict=True))


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_beginners_question_finds_its_page_among_the_first_three(
    found: dict[str, list[str]], question: str
) -> None:
    pages = [one.partition("#")[0] for one in found[question][:3]]
    assert {f"docs/{page}.html" for page in QUESTIONS[question]} & set(pages), pages


def test_what_nobody_has_written_about_finds_nothing(found: dict[str, list[str]]) -> None:
    assert found["xyzzyplugh"] == []


def test_guides_come_before_generated_pages(found: dict[str, list[str]]) -> None:
    assert "python-client" not in " ".join(found["client"][:3])


def test_the_pages_name_the_worker_that_is_there() -> None:
    if not ARCHIVE.exists():
        missing("the documentation is not built: make docs")
    with ZipFile(ARCHIVE) as site:
        (worker,) = (Path(name).name for name in site.namelist() if "/workers/search." in name)
        assert f"workers/{worker}" in site.read("docs/quickstart.html").decode()
