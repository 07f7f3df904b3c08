"""Puts `help_search.js` into the worker that searches the documentation: `python .ci/help_search.py SITE`.

The worker has no option for how it ranks. If one of the places that are changed is not there, because another release
of Zensical builds the site, this fails, and so does `make docs`.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

#: What stands in the worker once, and what replaces it.
PLACES = {
    'J({type:"text",data:t.data})': "self.ranked(J,t.data)",
    # all results in one page, because they are ranked afterwards
    "we({handler:Me,size:10})": "we({handler:Me,size:1e4})",
}


def main(site: Path) -> None:
    (worker,) = (site / "assets/javascripts/workers").glob("search.*.min.js")
    text = worker.read_text(encoding="utf-8")
    for old, new in PLACES.items():
        if text.count(old) != 1:
            sys.exit(f"{worker.name} does not have {old!r} once: does another release of Zensical build the site?")
        text = text.replace(old, new)
    ranking = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
    # in a function, so that its names and those of the worker are apart
    text = f'(() => {{\n"use strict";\n{ranking}}})();\n{text}'
    # browsers keep it for as long as its name stays
    renamed = worker.with_name(f"search.{hashlib.sha256(text.encode()).hexdigest()[:8]}.min.js")
    worker.unlink()
    renamed.write_text(text, encoding="utf-8")
    for page in site.rglob("*.html"):
        shown = page.read_text(encoding="utf-8")
        page.write_text(shown.replace(worker.name, renamed.name), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
