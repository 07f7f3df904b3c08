"""Whether a job is done from anywhere: said outright by JSON-LD, or in words."""

from __future__ import annotations

import re
from typing import Any

from crawler.job_posting.json_values import texts

_REMOTE = re.compile(
    r"\b(?:remote(?:ly)?|telecommut\w+|telework\w*|work(?:ing)? from (?:home|anywhere)|wfh|home[- ]?(?:based|office)"
    r"|t[eé]l[eé]travail|teletrabajo|teletrabalho|remoto|da remoto|smart ?working|thuiswerk\w*|zdaln\w+"
    r"|ortsunabh[aä]ngig|distans|anywhere|worldwide)\b|リモート|在宅|远程",
    re.IGNORECASE,
)
_ON_SITE = re.compile(
    r"\b(?:hybrid\w*|on[- ]?site|in[- ]office|vor ort|pr[eé]sentiel|presencial|in sede|stacjonarn\w+"
    r"|(?:no|not|non|kein|without) (?:\w+ )?(?:remote|home[- ]?office|t[eé]l[eé]travail)|remote[: ]+no\b"
    r"|(?:partly|partially|teilweise|some|occasional) (?:remote|home[- ]?office))\b",
    re.IGNORECASE,
)
#: Work with what is remote, and home offices that are only allowed now and then.
_NOT_THE_JOB = re.compile(
    r"\bremote[- ](?:sensing|control\w*|desktop|monitoring|access|handling|pilot\w*|support|hands|areas?|site|sites"
    r"|communit\w+|locations?|diagnos\w+)\b|home[- ]?office[- ](?:m[oö]glich|option\w*|tage?)",
    re.IGNORECASE,
)
#: In a description only what cannot be meant otherwise counts.
_PLAINLY = re.compile(
    r"\b(?:(?:fully|100\s?%|completely|entirely|permanently)[ -]remote|100\s?% (?:home[- ]?office|t[eé]l[eé]travail)"
    r"|(?:this|the) (?:is an? |position is |role is |job is )(?:\w+ )?remote(?: (?:position|role|job))?)\b",
    re.IGNORECASE,
)


def is_remote(posting: dict[str, Any]) -> bool | None:
    """By `jobLocationType`, which sites write in many ways; `None` if it says nothing of it."""
    types = [text.lower() for text in texts(posting.get("jobLocationType"))]
    if any("telecommut" in text for text in types):
        return True
    return is_remote_text(*types)


def is_remote_text(*short: str | None, description: str | None = None) -> bool | None:
    """By texts that are about the job alone (title, place, kind), and what is plain in its description."""
    text = _NOT_THE_JOB.sub(" ", " | ".join(one for one in short if one))
    if _ON_SITE.search(text):
        return False
    if _REMOTE.search(text):
        return True
    return True if description and _PLAINLY.search(description) else None
