"""Makes the blocking client of `client/` from the asynchronous one; with `--check` says whether it would change.

`unasyncd` needs another rich than the platform, so it is called where it is installed: the first argument.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
CLIENT = ROOT / "client"


def made(unasyncd: str) -> dict[Path, str]:
    """The text of each module by its path below `client/`."""
    targets = tomllib.loads((CLIENT / "pyproject.toml").read_text())["tool"]["unasyncd"]["files"].values()
    with TemporaryDirectory() as folder:
        copy = Path(folder, "client")
        shutil.copytree(CLIENT, copy, ignore=shutil.ignore_patterns("__pycache__"))
        for target in targets:
            (copy / target).unlink(missing_ok=True)
        # it exits with 1 where it has changed something
        subprocess.run([unasyncd, "--quiet", "--force"], cwd=copy, check=False)
        ruff = [str(Path(sys.executable).with_name("ruff"))]
        options = ["--config", str(ROOT / "pyproject.toml"), "--no-cache", "--quiet", *targets]
        # it leaves imports behind that nothing uses any more, and adds some anywhere
        subprocess.run([*ruff, "check", "--select=I,F401", "--fix-only", *options], cwd=copy, check=True)
        subprocess.run([*ruff, "format", *options], cwd=copy, check=True)
        return {Path(target): (copy / target).read_text() for target in targets}


def main(unasyncd: str, *options: str) -> str | None:
    """Returns what is wrong."""
    modules = made(unasyncd)
    changed = [path for path, text in modules.items() if _text(CLIENT / path) != text]
    if "--check" in options:
        return f"`make blocking-client` would change {', '.join(map(str, changed))}" if changed else None
    for path in changed:
        (CLIENT / path).write_text(modules[path])
    return None


def _text(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
