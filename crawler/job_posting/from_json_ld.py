"""A schema.org `JobPosting` as a posting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from crawler.job_posting.employment import employment_types
from crawler.job_posting.graph import JobNode
from crawler.job_posting.json_values import each, text_of
from crawler.job_posting.link import web_url
from crawler.job_posting.place import location_of
from crawler.job_posting.plain_text import markup_of, plain_text
from crawler.job_posting.posted import day_of, moment_of
from crawler.job_posting.posting import Posting
from crawler.job_posting.remote import is_remote, is_remote_text
from crawler.job_posting.salary_json_ld import salary_of


def posting_of(job: JobNode, base: str, language: str | None = None) -> Posting:
    """`base` is what relative URLs are relative to; `language` the page's, for dates that are spelled out."""
    node = job.whole
    location = location_of(node)
    title = text_of(node.get("title")) or text_of(node.get("name"))
    written = "\n".join(one for one in each(node.get("description")) if isinstance(one, str))
    description = plain_text(written)
    remote = is_remote(node)
    if remote is None:
        remote = is_remote_text(title, location["text"] if location else None, description=description)
    return Posting(
        source="json-ld",
        title=title,
        company=text_of(node.get("hiringOrganization")),
        location=location,
        remote=remote,
        salary=salary_of(node, location["country"] if location else None),
        posted=day_of(node.get("datePosted"), language),
        valid_through=moment_of(node.get("validThrough"), language),
        employment_type=employment_types(node.get("employmentType")),
        url=next(_urls(node, base), None),
        description=description,
        description_html=markup_of(written),
        identifier=text_of(node.get("identifier"), ("value", "@value", "@id", "name")),
        raw=job.written,
    )


def _urls(node: dict[str, Any], base: str) -> Iterator[str]:
    for name in ("url", "mainEntityOfPage", "@id", "sameAs"):
        written = text_of(node.get(name), ("@id", "url", "@value"))
        if written and (name == "url" or written.startswith(("http://", "https://"))):
            url = web_url(base, written)
            if url:
                yield url
