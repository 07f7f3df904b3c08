"""The spider's process: `python -m crawler.node.runner crawl <spider>`.

With `DISCOVERYBOT_ATTEMPT_DIR` it runs what that folder's `spec.json` says; URLs and parameters are read before
the spider is built, so they reach any spider as its arguments, whatever their size. Without it, it is Scrapyd's
own runner (`list`, plain Scrapyd jobs), with our add-on put into the project.
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import orjson

from crawler.node.crawl import crawl
from crawler.node.project_names import OWN_PROJECT, canonical
from crawler.node.project_settings import project_settings
from gateway.contract.outbox import SPEC, NodeSpec, read_file
from gateway.settings import NodeSettings


def preload() -> None:
    """What a process does once from which crawls are forked."""
    from crawler.node.preload import import_everything  # noqa: PLC0415 - a started process imports what it needs

    import_everything(project_settings())


def main() -> None:
    folder = os.environ.get("DISCOVERYBOT_ATTEMPT_DIR")
    if not folder:
        _run_command()
        return
    _keep_mark()
    spec = NodeSpec.model_validate(orjson.loads(read_file(Path(folder) / SPEC)))
    project = canonical(spec.project)
    os.environ["SCRAPY_PROJECT"] = project
    if spec.version:
        os.environ["SCRAPYD_EGG_VERSION"] = spec.version
    with _project(project):
        code = crawl(spec, folder)
    _leave(code)


def _keep_mark() -> None:
    """The `flock` on the started mark is to end with this process: nothing it starts may inherit it."""
    mark = os.environ.pop("DISCOVERYBOT_MARK_FD", None)
    if mark:
        os.set_inheritable(int(mark), False)  # noqa: FBT003 - the function's own signature


def _project(project: str) -> AbstractContextManager[None]:
    """The project's egg, put on `sys.path`; nothing to do for our own, which is installed and has none."""
    eggs = NodeSettings.load().node_dir / "eggs" / project
    if project == OWN_PROJECT and not eggs.exists():
        return nullcontext()
    from crawler.node.eggs import project_environment  # noqa: PLC0415 - a quarter of a second that our own never pays

    return project_environment(project)


def _run_command() -> None:
    from scrapy.cmdline import execute  # noqa: PLC0415 - only plain Scrapyd jobs need it

    with _project(canonical(os.environ.get("SCRAPY_PROJECT", OWN_PROJECT))):
        execute(settings=project_settings())


def _leave(code: int) -> None:
    """End at once: tearing down the interpreter takes longer than many a crawl."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
