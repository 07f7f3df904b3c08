"""Single fields of a posting: text, dates, kind of employment, place, and whether the job is remote."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from lxml import etree
from lxml.html import fragment_fromstring

from crawler.extraction.values import date_in, seen_parts, squeeze
from crawler.job_posting.posting import Location, location_of_text

_TAG = re.compile(r"</?[a-z][a-z0-9]*\b[^<>]*>", re.IGNORECASE)
_BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "br", "dd", "details", "div", "dl", "dt", "figure", "footer", "form",
    "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol", "p", "pre", "section", "summary",
    "table", "tbody", "thead", "tr", "ul",
})  # fmt: skip
#: Some sites escape what they write into JSON twice.
_UNESCAPES = 2
#: Characters that are read of a description.
MAX_TEXT_LENGTH = 200_000


def unescaped(text: str) -> str:
    """`text` without HTML entities."""
    for _ in range(_UNESCAPES):
        if "&" not in text:
            break
        text = html.unescape(text)
    return text


def one_line(text: str) -> str | None:
    """A title or name without entities and tags, and with white space squeezed."""
    text = unescaped(text)
    return squeeze(_TAG.sub(" ", text)) or None


def is_html(text: str) -> bool:
    return _TAG.search(text) is not None


def markup_of(text: str) -> str | None:
    """`text` as HTML if it is HTML, escaped or not; `None` if it is plain text."""
    for candidate in (text, unescaped(text)):
        if is_html(candidate):
            return candidate.strip()
    return None


def plain_text(text: str) -> str | None:
    """`text` (HTML, escaped HTML, or plain text) as plain text with its lines."""
    text = text[:MAX_TEXT_LENGTH].replace("\0", "")
    markup = markup_of(text)
    if markup is None:
        return lines_of(unescaped(text))
    try:
        return element_text(fragment_fromstring(markup, create_parent="div"))
    except (etree.LxmlError, ValueError):
        return lines_of(_TAG.sub("\n", markup))


def element_text(element: Any) -> str | None:
    # line breaks in HTML are spaces
    return lines_of("".join(seen_parts(element, lambda tag: "\n" if tag in _BLOCKS else "", squeeze_inner)))


def lines_of(text: str) -> str | None:
    """The text's lines with white space squeezed, and without empty lines."""
    lines = (squeeze(line) for line in text.splitlines())
    return "\n".join(line for line in lines if line) or None


def squeeze_inner(text: str | None) -> str:
    """The text with each run of white space as one space, also at both ends."""
    return re.sub(r"\s+", " ", text or "")


# --- values of JSON-LD, where any value can be one or a list, a text or an object with a name

_NAMES = ("@value", "name", "value", "legalName")
MAX_NESTING = 8


def each(value: Any, depth: int = MAX_NESTING) -> Iterator[Any]:
    """The members of a list, or the value itself, without empty values."""
    if isinstance(value, list):
        for inner in value if depth else ():
            yield from each(inner, depth - 1)
    elif value not in (None, "", {}):
        yield value


def different(value: Any) -> Iterator[Any]:
    """The values of `each` without repetitions of the same object: references may stand for it a thousand times."""
    return iter({id(one): one for one in each(value)}.values())


def texts(value: Any, names: tuple[str, ...] = _NAMES) -> Iterator[str]:
    """The texts in a value, each on one line. An object stands for the first of its fields in `names` that has a
    text.
    """
    yield from _texts(value, names, MAX_NESTING, set())


def _texts(value: Any, names: tuple[str, ...], depth: int, seen: set[int]) -> Iterator[str]:
    """As `texts`. Objects in `seen` are not read again: many references to one object may each contain many to
    another.
    """
    for one in each(value):
        if isinstance(one, str):
            if text := one_line(one):
                yield text
        elif isinstance(one, int | float) and not isinstance(one, bool):
            yield str(one)
        elif isinstance(one, dict) and depth and id(one) not in seen:
            seen.add(id(one))
            found = (text for name in names for text in _texts(one.get(name), names, depth - 1, seen))
            if text := next(found, None):
                yield text


def text_of(value: Any, names: tuple[str, ...] = _NAMES) -> str | None:
    return next(texts(value, names), None)


def objects(value: Any) -> Iterator[dict[str, Any]]:
    for one in each(value):
        if isinstance(one, dict):
            yield one


def types_of(node: dict[str, Any]) -> frozenset[str]:
    """The node's `@type`s in lower case, without the vocabulary's URL."""
    written = (one for one in each(node.get("@type")) if isinstance(one, str))
    return frozenset(name.replace("#", "/").rsplit("/", 1)[-1].rsplit(":", 1)[-1].strip().lower() for name in written)


# --- when a posting was published, or ends, in ISO 8601

#: Maximum number of characters that are read of a date.
MAX_DATE_LENGTH = 200
_DAY_LENGTH = len("2026-03-01")
#: Numbers from here on are milliseconds since 1970; smaller ones are seconds.
_MILLISECONDS_FROM = 100_000_000_000
#: Seconds or milliseconds as a text; shorter or longer numbers may be dates without hyphens.
_EPOCH = re.compile(r"[0-9]{9,13}")
_SPAN = re.compile(
    r"(?<!\w)(\d{1,4}|an?|one)\s*\+?\s*(minutes?|mins?|m|hours?|hrs?|h|days?|d|weeks?|wks?|w|months?|mos?|mo|years?|yrs?|y)"
    r"(?![^\W\d_])(?=\s*(?:\+|ago\b|$))",
    re.IGNORECASE,
)
_DAYS = {"m": 0.0, "h": 1 / 24, "d": 1.0, "w": 7.0, "mo": 30.0, "y": 365.0}
_TODAY = re.compile(
    r"(?:just (?:posted|now)|today|moments? ago|heute|gerade eben|aujourd.hui|hoy|oggi|vandaag)\b|new$", re.IGNORECASE
)
_YESTERDAY = re.compile(r"(?:yesterday|gestern|hier$|ayer|ieri|gisteren|ontem)\b", re.IGNORECASE)
_LABEL = re.compile(
    r"^(?:re-?)?(?:posted|published|updated|active|listed|added|date|employer|veröffentlicht|erschienen|publi[eé]e?|"
    r"publicad[oa]|pubblicat[oa]|geplaatst|:|-|\s)+(?:(?:on|am|le|el|il)\s)?",
    re.IGNORECASE,
)


def day_in(text: str, *, language: str | None = None, now: datetime | None = None) -> str | None:
    """The day that `text` names, `3 days ago` and `30+ days ago` too; `None` if it names none, or only a month."""
    now = now or datetime.now(UTC)
    text = squeeze(text)[:MAX_DATE_LENGTH]
    if not text:
        return None
    bare = _LABEL.sub("", text)
    ago = _days_ago(text, bare)
    if ago is not None:
        return _day_before(now, ago)
    moment = _moment(text, language) or _moment(bare, language)
    return moment[:_DAY_LENGTH] if moment and len(moment) >= _DAY_LENGTH else None


def _day_before(now: datetime, days: float) -> str | None:
    try:
        return (now - timedelta(days=days)).date().isoformat()
    except OverflowError:
        return None


def moment_of(value: Any, language: str | None = None) -> str | None:
    """The time in a JSON-LD value: a text, or seconds or milliseconds since 1970."""
    for one in each(value):
        if isinstance(one, int | float) and not isinstance(one, bool):
            return _of_epoch(one)
    text = text_of(value)
    if text is None:
        return None
    return _of_epoch(int(text)) if _EPOCH.fullmatch(text) else _moment(text, language)


def day_of(value: Any, language: str | None = None) -> str | None:
    """The day in a JSON-LD value."""
    moment = moment_of(value, language)
    if moment and len(moment) >= _DAY_LENGTH:
        return moment[:_DAY_LENGTH]
    text = text_of(value)
    return day_in(text, language=language) if text else None


def _days_ago(text: str, bare: str) -> float | None:
    """How many days ago `text` says; `bare` is the text without a label such as "posted on"."""
    if span := _SPAN.search(text):
        count = 1 if span[1].lower() in {"a", "an", "one"} else int(span[1])
        unit = span[2].lower()
        return count * _DAYS["mo" if unit.startswith("mo") else unit[0]]
    if _YESTERDAY.match(bare):
        return 1.0
    return 0.0 if _TODAY.match(bare) or _TODAY.match(text) else None


def _moment(text: str, language: str | None) -> str | None:
    try:
        return date_in(text, language=language)
    except (ValueError, OverflowError):
        return None


def _of_epoch(seconds: float) -> str | None:
    try:
        moment = datetime.fromtimestamp(seconds / 1000 if seconds >= _MILLISECONDS_FROM else seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return moment.isoformat()


# --- whether a job is remote, by JSON-LD's own field or by words

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
#: Words about other remote things, and about a home office that is only allowed at times.
_NOT_THE_JOB = re.compile(
    r"\bremote[- ](?:sensing|control\w*|desktop|monitoring|access|handling|pilot\w*|support|hands|areas?|site|sites"
    r"|communit\w+|locations?|diagnos\w+)\b|home[- ]?office[- ](?:m[oö]glich|option\w*|tage?)",
    re.IGNORECASE,
)
#: In a description only these unambiguous words count.
_PLAINLY = re.compile(
    r"\b(?:(?:fully|100\s?%|completely|entirely|permanently)[ -]remote|100\s?% (?:home[- ]?office|t[eé]l[eé]travail)"
    r"|(?:this|the) (?:is an? |position is |role is |job is )(?:\w+ )?remote(?: (?:position|role|job))?)\b",
    re.IGNORECASE,
)


def is_remote(posting: dict[str, Any]) -> bool | None:
    """Whether the job is remote according to `jobLocationType`, which sites write in many ways; `None` if unknown."""
    types = [text.lower() for text in texts(posting.get("jobLocationType"))]
    if any("telecommut" in text for text in types):
        return True
    return is_remote_text(*types)


def is_remote_text(*short: str | None, description: str | None = None) -> bool | None:
    """Whether the job is remote according to short texts about it (title, place, kind) and to unambiguous words in
    its description; `None` if unknown.
    """
    text = _NOT_THE_JOB.sub(" ", " | ".join(one for one in short if one))
    if _ON_SITE.search(text):
        return False
    if _REMOTE.search(text):
        return True
    return True if description and _PLAINLY.search(description) else None


# --- kinds of employment, in the words of schema.org where they are known

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
    """The kinds of employment, each once. A text with several (`Full-time, Contract`) is split."""
    written = [one for text in texts(value) for one in _BETWEEN.split(_ADDRESS.sub("", text)) if one]
    return list(dict.fromkeys(_kind(one) for one in written))[:MAX_KINDS]


def _kind(text: str) -> str:
    if text.upper() in _PATTERNS:
        return text.upper()
    return next((kind for kind, pattern in _PATTERNS.items() if pattern.search(text)), text)


# --- where a job is, by JSON-LD

#: At most this many places of one posting are kept: some postings list every branch of the company.
MAX_PLACES = 20
_PARTS = {
    "street": "streetAddress",
    "city": "addressLocality",
    "region": "addressRegion",
    "postal_code": "postalCode",
    "country": "addressCountry",
}
_SHOWN = ("city", "region", "country")


def location_of(posting: dict[str, Any]) -> Location | None:
    """The place in the posting's `jobLocation`, or else where applicants may live."""
    places = list(islice(filter(None, map(_place, different(posting.get("jobLocation")))), MAX_PLACES))
    if not places:
        names = dict.fromkeys(texts(posting.get("applicantLocationRequirements")))
        return location_of_text("; ".join(islice(names, MAX_PLACES)))
    first = places[0]
    first["text"] = "; ".join(dict.fromkeys(text for place in places if (text := place["text"]))) or None
    return first


def _place(value: Any) -> Location | None:
    if isinstance(value, str):
        return location_of_text(text_of(value))
    if not isinstance(value, dict) or "virtuallocation" in types_of(value):
        return None
    addresses = [one for one in each(value.get("address", value)) if isinstance(one, dict)]
    parts = _address_parts(addresses[0]) if addresses else {}
    written = text_of(value.get("address") if not addresses else None)
    place = ", ".join(dict.fromkeys(text for name in _SHOWN if (text := parts.get(name))))
    text = place or written or parts.get("street") or text_of(value.get("name"))
    if not text:
        return None
    return Location(
        text=text,
        street=parts.get("street"),
        city=parts.get("city"),
        region=parts.get("region"),
        postal_code=parts.get("postal_code"),
        country=parts.get("country"),
    )


def _address_parts(address: dict[str, Any]) -> dict[str, str | None]:
    return {name: text_of(address.get(written)) for name, written in _PARTS.items()}
