"""All places that name the version agree, and a release is a tag with its notes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from unit.house.sources import ROOT

#: What the script reads.
PLACES = (
    *("pyproject.toml", "uv.lock", "Dockerfile", "docker-compose.yml", "CHANGELOG.md", ".ci/release.py"),
    *("client/pyproject.toml", "client/typescript/package.json", "client/typescript/package-lock.json"),
    "client/src/discoverybot_client/_version.py",
    *("deploy/node/compose.yml", "deploy/helm/discoverybot/Chart.yaml"),
)
VERSION = version("discoverybot")
NOTES = "### Added\n\n- # of things\n"


def _git(folder: Path, *arguments: str) -> str:
    own = ("-c", "user.name=tester", "-c", "user.email=tester@example.org")
    return subprocess.run(("git", *own, *arguments), cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository of its own, in which the present version has its notes."""
    for place in PLACES:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / place, tmp_path / place)
    changes = tmp_path / "CHANGELOG.md"
    text = changes.read_text(encoding="utf-8")
    section = f"## [{VERSION}] - 2027-01-31\n\n{NOTES}\n## [0.1.0]"
    changes.write_text(text.replace("## [0.1.0]", section, 1), encoding="utf-8")
    _git(tmp_path, "init", "--quiet")
    _git(tmp_path, "config", "user.name", "tester")
    _git(tmp_path, "config", "user.email", "tester@example.org")
    _git(tmp_path, "add", "--all")
    _git(tmp_path, "commit", "--quiet", "--message", "all of it")
    return tmp_path


def _release(clone: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, ".ci/release.py", *arguments)
    return subprocess.run(command, cwd=clone, check=False, capture_output=True, text=True)


def test_every_place_names_the_version_and_its_notes_become_a_tag(clone: Path) -> None:
    assert _release(clone, VERSION).stdout == NOTES
    tagged = _release(clone, "--tag", VERSION)
    assert tagged.returncode == 0, tagged.stderr
    assert (
        _git(clone, "for-each-ref", f"refs/tags/v{VERSION}", "--format=%(contents)").strip().endswith(NOTES.strip())
    )
    again = _release(clone, "--tag", VERSION)
    assert again.returncode == 1


def test_a_version_that_a_place_does_not_name_is_refused_with_the_place(clone: Path) -> None:
    chart = clone / "deploy/helm/discoverybot/Chart.yaml"
    chart.write_text(chart.read_text().replace(f"appVersion: {VERSION}", "appVersion: 9.9.9"))
    refused = _release(clone, VERSION)
    assert (refused.returncode, refused.stderr.splitlines()[1:]) == (
        1,
        [f"deploy/helm/discoverybot/Chart.yaml: {', '.join(sorted((VERSION, '9.9.9')))}"],
    )


def test_a_release_does_not_send_its_readers_to_another_repository(clone: Path) -> None:
    named = re.search(r'Homepage = "(.+)"', (clone / "pyproject.toml").read_text(encoding="utf-8"))
    assert named
    assert _release(clone, "--repository", named[1], VERSION).stdout == NOTES
    elsewhere = "https://github.com/another/one"
    assert f"{named[1]}, and this is {elsewhere}" in _release(clone, "--repository", elsewhere, VERSION).stderr


def test_neither_without_notes_nor_with_changes_that_are_not_committed(clone: Path) -> None:
    (clone / "more").touch()
    assert "not committed" in _release(clone, "--tag", VERSION).stderr
    shutil.copy(ROOT / "CHANGELOG.md", clone)
    if f"## [{VERSION}] - " not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        assert "CHANGELOG.md has no notes" in _release(clone, VERSION).stderr
