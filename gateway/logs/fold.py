"""Which lines of a log are folded: those in which Scrapy reports a crawl's setup and its statistics.

They are most of a short log, and people read them only if something is wrong. So the console folds them; programs get
the whole log.
"""

from __future__ import annotations

#: The group into which the lines of a logger are folded.
FOLDED = {
    "crawler.node.runner": "setup",
    "scrapy.addons": "setup",
    "scrapy.crawler": "setup",
    "scrapy.extensions.telnet": "setup",
    "scrapy.middleware": "setup",
    "scrapy.utils.log": "setup",
    "scrapy.statscollectors": "statistics",
}
_LEVELS = {"DEBUG", "INFO"}
#: First characters of lines that continue a list or a dictionary. Tracebacks and what a spider prints stay.
_PRETTY_PRINTED = ("[", "{", " ")


def folded_as(logger: str | None, level: str, message: str, before: str | None, *, cont: bool) -> str | None:
    """The group into which a line is folded; `None` if it is shown. `before` is the result for the previous line."""
    if cont:
        return before if message.startswith(_PRETTY_PRINTED) else None
    return FOLDED.get(logger or "") if level in _LEVELS else None
