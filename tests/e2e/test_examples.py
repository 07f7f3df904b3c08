"""The programs in docs/examples do what they say, as they stand there."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import warm
from sites.server import Site, html
from stack import ROOT, Stack, wait_until

pytestmark = [pytest.mark.stack]

EXAMPLES = ROOT / "docs/examples"
#: As quotes.toscrape.com has it.
QUOTES = html("""
<div class="quote"><a class="tag">humor</a><a href="/author/Jane-Austen">about</a></div>
<div class="quote"><a class="tag">life</a><a href="/author/Albert-Einstein">about</a></div>
""")
AUTHORS = {
    f"/author/{name.replace(' ', '-')}": html(
        f'<h3 class="author-title">{name}\n</h3><span class="author-born-date">{born}</span>'
    )
    for name, born in (("Jane Austen", "December 16, 1775"), ("Albert Einstein", "March 14, 1879"))
}


def _environment(stack: Stack) -> dict[str, str]:
    return {**os.environ, "DISCOVERYBOT_URL": stack.url}


def _run(stack: Stack, *command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=_environment(stack), capture_output=True, text=True, timeout=120, check=False)


def test_the_project_is_deployed_with_what_it_requires_and_crawls(stack: Stack, site: Site, tmp_path: Path) -> None:
    site.pages |= {"/": QUOTES, **AUTHORS}
    done = warm.run("gateway.cli.main", "deploy", str(EXAMPLES / "quotes"), env=_environment(stack))
    assert done.returncode == 0, done.stderr
    assert "as in requirements.txt" in done.stderr
    output = tmp_path / "quotes.jsonl"
    crawl = ("crawl", site.url, "--project", "quotes", "--spider", "quotes", "--output", str(output))
    done = warm.run("gateway.cli.main", *crawl, "--param", "tag=humor", env=_environment(stack))
    assert done.returncode == 0, done.stderr
    (author,) = map(json.loads, output.read_text().splitlines())
    assert (author["name"], author["born"]) == ("Jane Austen", "1775-12-16")


def test_the_client_prints_the_whole_log_and_how_the_crawl_ended(stack: Stack, site: Site) -> None:
    done = _run(stack, sys.executable, EXAMPLES / "follow_a_crawl.py", f"{site.url}/tree/4")
    assert done.returncode == 0, done.stderr
    assert "INFO Spider opened" in done.stdout.splitlines()
    assert done.stdout.splitlines()[-1] == "finished: 5 pages, 5 items"


def test_the_client_fails_where_the_crawl_does(stack: Stack, site: Site) -> None:
    done = _run(stack, sys.executable, EXAMPLES / "follow_a_crawl.py", f"{site.url}/status/404")
    assert (done.returncode, done.stdout.splitlines()[-1].partition(":")[0]) == (1, "error")
    refused = _run(stack, sys.executable, EXAMPLES / "follow_a_crawl.py")
    assert (refused.returncode, "start_urls" in refused.stderr) == (1, True)


def test_the_receiver_saves_the_items_of_a_crawl_that_it_is_called_for(
    stack: Stack, site: Site, tmp_path: Path
) -> None:
    with _receiver(stack, tmp_path) as url:
        forged = stack.http.post(f"{url}/guessed", json={"job_id": "0" * 32})
        job = stack.crawl(f"{site.url}/tree/4", webhook_url=f"{url}/s3cret")
        again = {"job_id": job}
        saved = wait_until(lambda: list(tmp_path.glob("*.csv")), what="the call")
        assert stack.http.post(f"{url}/s3cret", json=again).status_code == 204
    assert (forged.status_code, [path.name for path in saved]) == (404, [f"{job}.csv"])
    assert len(list(csv.DictReader(saved[0].read_text().splitlines()))) == 5


@contextmanager
def _receiver(stack: Stack, folder: Path) -> Iterator[str]:
    command = (sys.executable, EXAMPLES / "webhook_receiver.py", "--port", "0", "--secret", "s3cret", folder)
    with subprocess.Popen(command, env=_environment(stack), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().split()[-1]}"
        finally:
            process.terminate()


def test_the_script_sets_up_one_schedule_and_prints_the_items_of_its_latest_run(stack: Stack, site: Site) -> None:
    command = (EXAMPLES / "crawl_every_morning.sh", f"{site.url}/tree/4")
    first = _run(stack, *command)
    assert (first.returncode, first.stdout) == (0, "")
    done = _run(stack, *command, "now")
    assert done.returncode == 0, done.stderr
    assert len(list(csv.DictReader(done.stdout.splitlines()))) == 5
    again = _run(stack, *command)
    assert (again.stdout, again.stderr) == (done.stdout, done.stderr)
    assert first.stderr.splitlines()[0] == done.stderr.strip()
    stack.http.delete(f"{stack.url}/schedules/{done.stderr.split()[-1]}").raise_for_status()


def test_every_example_is_named_in_its_list() -> None:
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert not [one.name for one in EXAMPLES.iterdir() if f"({one.name})" not in page and one.name != "README.md"]
