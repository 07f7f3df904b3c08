"""Kinds of employment, in the words of schema.org where they are known."""

from __future__ import annotations

import re
from typing import Any

from crawler.job_posting.json_values import texts

_KINDS = {
    "FULL_TIME": (
        r"full[\s_-]?time|vollzeit|temps[\s_-]plein|cdi|(?:tiempo|jornada) complet[oa]|tempo pieno|voltijd|permanent"
    ),
    "PART_TIME": r"part[\s_-]?time|parttime|teilzeit|temps[\s_-]partiel|tiempo parcial|media jornada|deeltijd",
    "CONTRACTOR": r"contract\w*|freelance\w*|freiberuflich|self[\s_-]?employed|b2b",
    "TEMPORARY": r"temp|temporary|befristet|cdd|int[eé]rim|temporal|seasonal|saison\w*",
    "INTERN": r"intern|internship|praktikum|praktikant\w*|stage|becari\w+|pr[aá]cticas|stagiaire|werkstudent\w*",
    "VOLUNTEER": r"volunt\w+|ehrenamt\w*|b[eé]n[eé]vol\w+",
    "PER_DIEM": r"per[\s_-]?diem",
    "OTHER": r"other",
}
_PATTERNS = {kind: re.compile(rf"(?<!\w)(?:{pattern})(?!\w)", re.IGNORECASE) for kind, pattern in _KINDS.items()}
_ADDRESS = re.compile(r"https?://schema\.org/")
_BETWEEN = re.compile(r"\s*[,;/|]\s*")
MAX_KINDS = 10


def employment_types(value: Any) -> list[str]:
    """Each once; of a text with several (`Full-time, Contract`) each of them."""
    written = [one for text in texts(value) for one in _BETWEEN.split(_ADDRESS.sub("", text)) if one]
    return list(dict.fromkeys(_kind(one) for one in written))[:MAX_KINDS]


def _kind(text: str) -> str:
    if text.upper() in _PATTERNS:
        return text.upper()
    return next((kind for kind, pattern in _PATTERNS.items() if pattern.search(text)), text)
