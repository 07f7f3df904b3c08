"""Checks that all places name one version, and prints the notes that CHANGELOG has of it, or tags it with them.

python .ci/release.py 0.2.0          # prints the notes
python .ci/release.py --tag 0.2.0    # makes the annotated tag v0.2.0, and pushes nothing
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Where a version stands, and as what. Every match in a file has to be the same.
PLACES = {
    "pyproject.toml": r'^(?:version = "|  "discoverybot-client==)(.+?)"',
    "client/pyproject.toml": r'^version = "(.+)"$',
    "client/src/discoverybot_client/_version.py": r'^__version__ = "(.+)"$',
    "client/typescript/package.json": r'^  "version": "(.+)",$',
    "client/typescript/package-lock.json": r'^  "version": "(.+)",$',
    "uv.lock": r'^name = "discoverybot(?:-client)?"\nversion = "(.+)"$',
    "Dockerfile": r'org\.opencontainers\.image\.version="(.+)"',
    "docker-compose.yml": r"image: discoverybot/\w+(?::(\S+))?$",
    "deploy/node/compose.yml": r"image: discoverybot/\w+(?::(\S+))?$",
    "deploy/helm/discoverybot/Chart.yaml": r"^(?:version|appVersion): (\S+)$",
}


class ReleaseError(Exception):
    """The version cannot be released; the message says why."""


def versions(root: Path = ROOT) -> dict[str, set[str]]:
    """What each place names; empty for one that names none."""
    return {
        name: set(re.findall(pattern, (root / name).read_text(encoding="utf-8"), re.MULTILINE))
        for name, pattern in PLACES.items()
    }


def notes(version: str, root: Path = ROOT) -> str:
    """CHANGELOG's section of the version, without its head. Raises `ReleaseError` if there is none with a date."""
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    head = rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## \[|\Z)"
    found = re.search(head, text, re.MULTILINE | re.DOTALL)
    if found is None or not found[1].strip():
        raise ReleaseError(f"CHANGELOG.md has no notes under `## [{version}] - <date>`")
    return found[1].strip()


def check(version: str, root: Path = ROOT) -> str:
    """The notes. Raises `ReleaseError` that names each place with another version."""
    wrong = {name: found for name, found in versions(root).items() if found != {version}}
    if wrong:
        raise ReleaseError(
            "\n".join(f"{name}: {', '.join(sorted(found)) or 'none'}" for name, found in wrong.items())
        )
    return notes(version, root)


def check_addresses(repository: str, root: Path = ROOT) -> None:
    """Raises `ReleaseError` where pyproject.toml sends readers of PyPI to another repository than this one."""
    addresses = r"https://(?:github|raw\.githubusercontent)\.com/[\w.-]+/[\w.-]+"
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    found = {url.replace("raw.githubusercontent", "github") for url in re.findall(addresses, text)}
    if found != {repository}:
        raise ReleaseError(f"pyproject.toml: {', '.join(sorted(found))}, and this is {repository}")


def tag(version: str, text: str, root: Path = ROOT) -> None:
    """Raises `ReleaseError` where something is not committed, `CalledProcessError` if the tag is there already."""
    status = ("git", "status", "--porcelain")
    if subprocess.run(status, cwd=root, check=True, capture_output=True, text=True).stdout:
        raise ReleaseError("there are changes that are not committed")
    # headings begin with what git takes for comments
    command = ("git", "tag", "--annotate", f"v{version}", "--cleanup=verbatim", "--file=-")
    subprocess.run(command, cwd=root, check=True, input=f"DiscoveryBot {version}\n\n{text}\n", text=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version")
    parser.add_argument("--tag", action="store_true", help="tag the present commit")
    parser.add_argument("--repository", help="check that the addresses in pyproject.toml are this repository's")
    options = parser.parse_args()
    try:
        text = check(options.version)
        if options.repository:
            check_addresses(options.repository)
        if options.tag:
            tag(options.version, text)
            sys.stdout.write(f"tagged v{options.version}: git push origin v{options.version}\n")
        else:
            sys.stdout.write(f"{text}\n")
    except (ReleaseError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"{options.version} cannot be released:\n{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
