"""Where a job is, by JSON-LD."""

from __future__ import annotations

from itertools import islice
from typing import Any

from crawler.job_posting.json_values import different, each, text_of, texts, types_of
from crawler.job_posting.posting import Location, location_of_text

#: Places that are told of one posting; some list every branch of the company.
MAX_PLACES = 20
_PARTS = {
    "street": "streetAddress",
    "city": "addressLocality",
    "region": "addressRegion",
    "postal_code": "postalCode",
    "country": "addressCountry",
}
_TOLD = ("city", "region", "country")


def location_of(posting: dict[str, Any]) -> Location | None:
    """Of its `jobLocation`; where it has none, of where applicants may live."""
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
    parts = _parts(addresses[0]) if addresses else {}
    written = text_of(value.get("address") if not addresses else None)
    told = ", ".join(dict.fromkeys(text for name in _TOLD if (text := parts.get(name))))
    text = told or written or parts.get("street") or text_of(value.get("name"))
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


def _parts(address: dict[str, Any]) -> dict[str, str | None]:
    return {name: text_of(address.get(written)) for name, written in _PARTS.items()}
