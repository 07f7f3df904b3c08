"""The wheels in an environment of their own, in a folder with only packages of its user's that have our names."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from forms import in_full
from sites.server import Site
from stack import ROOT, Stack, wait_until
from wheels import build_wheels, environment_of

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    wheels = build_wheels(folder / "dist", ROOT, ROOT / "client")
    return environment_of(wheels, folder / "environment") / "discoverybot"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a user whose own packages are called as ours are."""
    folder = tmp_path / "empty"
    for name in ("gateway", "crawler", "embedded"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("raise RuntimeError('somebody else's')\n")
    return folder


@pytest.fixture
def stack(program: Path, folder: Path) -> Iterator[Stack]:
    """`discoverybot up`, with its data where it is if nothing is said."""
    home, output = folder / ".discoverybot", folder / "up.log"
    command = (str(program), "up", "--free-ports", "--ready-file", str(home / "ready.json"))
    with output.open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=_environment(), stdout=log, stderr=log)
    stack = Stack(home, process, output)
    try:
        wait_until(lambda: _is_ready(stack), timeout=180, what="a healthy stack")
        yield stack
    finally:
        stack.http.close()
        process.send_signal(signal.SIGINT)
        process.wait(60)


def _is_ready(stack: Stack) -> bool:
    assert stack.process.poll() is None, stack.output.read_text()
    return (stack.home / "ready.json").exists()


def _environment(**more: str) -> dict[str, str]:
    return {**os.environ, "CRAWL_ALLOW_NETWORKS": "127.0.0.0/8", **more}


def _run(program: Path, *arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = (str(program), *arguments)
    env = _environment(**environment)
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=180, check=False)


def test_it_starts_the_platform_and_crawls_without_a_clone(
    stack: Stack, program: Path, folder: Path, site: Site
) -> None:
    shown = stack.output.read_text()
    for name in stack.ready["pids"]:
        assert shown.count(f"\n  {name} ") == 1
        assert (stack.home / "logs" / f"{name}.log").is_file() or name == "redis"  # which may have nothing to say
    assert f"{program} crawl " in shown
    done = _run(program, "crawl", f"{site.url}/tree/3", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Spider opened" in done.stdout
    assert "finished" in done.stdout
    _run_elsewhere(stack)
    _says_what_it_lacks(stack, site)


def _run_elsewhere(stack: Stack) -> None:
    """No process stands in the clone, in the environment, or in its user's folder."""
    for pid in stack.ready["pids"].values():
        with suppress(psutil.AccessDenied):  # who is not root may not look at processes that hide their secrets
            assert Path(psutil.Process(pid).cwd()).is_relative_to(stack.home)
    assert not {path.name for path in (stack.home / "work").iterdir()} - {"scrapyd.conf", "scrapy.cfg"}


def _says_what_it_lacks(stack: Stack, site: Site) -> None:
    body: dict[str, Any] = {"user_id": "anne", "spider": "seo", "start_urls": [site.url], "params": {"render": True}}
    refused = stack.http.post(f"{stack.url}/crawl", json=body)
    assert refused.is_client_error
    assert "discoverybot[render]" in refused.text


@in_full("the wheel above, and the demo in unit/embedded")
def test_its_demo_finds_what_is_wrong_with_a_site_and_is_gone_again(
    program: Path, folder: Path, tmp_path: Path
) -> None:
    (temporary := tmp_path / "temporary").mkdir()
    # the last two are of the user's own platform
    own = {"TMPDIR": str(temporary), "MONGO_PASSWORD": "of-another", "DISCOVERYBOT_SECRETS": "/nowhere"}
    before = {*folder.iterdir()}
    done = _run(program, "demo", cwd=folder, **own)
    assert done.returncode == 0, done.stdout + done.stderr
    for kind in ("server error", "broken link", "no title", "no description", "redirect"):
        assert kind in done.stdout
    assert done.stdout.rstrip().endswith(f"Now your own: `{program} up`, then `{program} crawl https://…`")
    head, _, _ = done.stdout.partition("findings")
    assert len(head.splitlines()) < 12, head
    assert "Console" not in done.stdout
    assert {*folder.iterdir()} == before
    assert not list(temporary.iterdir())
