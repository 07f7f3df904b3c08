"""A JobPosting in the shapes that sites give it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.job_posting.json_ld import JobNode, posting_of
from crawler.job_posting.posting import Posting

BASE = "https://jobs.example/search?page=2"
FULL = {
    "@type": "JobPosting",
    "title": "Keeper &amp; Cook (m/w/d)",
    "identifier": {"@type": "PropertyValue", "name": "Light", "value": 4711},
    "hiringOrganization": {
        "@type": "Organization",
        "name": "M&uuml;ller <b>GmbH</b>",
        "sameAs": "https://light.example",
    },
    "jobLocation": [
        {
            "@type": "Place",
            "address": {
                "@type": "PostalAddress",
                "streetAddress": "Rock 1",
                "addressLocality": "Skarholm",
                "addressRegion": "West",
                "postalCode": 12345,
                "addressCountry": {"@type": "Country", "name": "SE"},
            },
        },
        {"@type": "Place", "address": {"addressLocality": "Lund", "addressCountry": "SE"}},
    ],
    "baseSalary": {"currency": "SEK", "value": {"value": 30000, "unitText": "MONTH"}},
    "datePosted": "2026-03-01T08:00:00+01:00",
    "validThrough": "2026-04-01T23:59:59Z",
    "employmentType": ["FULL_TIME", "Contract"],
    "url": "/jobs/4711",
    "description": (
        "&lt;p&gt;Keep &lt;b&gt;the&lt;/b&gt; light.&lt;/p&gt;&lt;ul&gt;&lt;li&gt;Tea &amp;amp; cake&lt;/ul&gt;"
    ),
}


def read_node(node: dict[str, Any]) -> Posting:
    return posting_of(JobNode(node, node), BASE, "en")


def read(**node: Any) -> Posting:
    return read_node({"@type": "JobPosting", "title": "Keeper", **node})


def test_all_that_is_said_is_told() -> None:
    posting = read_node(FULL)
    assert posting.as_item() == {
        "source": "json-ld",
        "title": "Keeper & Cook (m/w/d)",
        "company": "Müller GmbH",
        "location": {
            "text": "Skarholm, West, SE; Lund, SE",
            "street": "Rock 1",
            "city": "Skarholm",
            "region": "West",
            "postal_code": "12345",
            "country": "SE",
        },
        "remote": None,
        "salary": {"min": 30000, "max": 30000, "currency": "SEK", "period": "month", "text": None},
        "posted": "2026-03-01",
        "valid_through": "2026-04-01T23:59:59+00:00",
        "employment_type": ["FULL_TIME", "CONTRACTOR"],
        "url": "https://jobs.example/jobs/4711",
        "description": "Keep the light.\nTea & cake",
        "description_html": "<p>Keep <b>the</b> light.</p><ul><li>Tea & cake</ul>",
        "identifier": "4711",
        "raw": FULL,
    }


@pytest.mark.parametrize(
    ("company", "name"),
    [
        ("Light", "Light"),
        ([{"name": "Light"}, {"name": "Dark"}], "Light"),
        ({"name": {"@value": "Light", "@language": "en"}}, "Light"),
        ({"@type": "Organization", "legalName": "Light AB"}, "Light AB"),
        ({"name": ["", "Light"]}, "Light"),
        ({"@id": "#nobody"}, None),
        (None, None),
        ({"name": None}, None),
        (7, "7"),
    ],
)
def test_a_company_is_named_in_many_ways(company: Any, name: str | None) -> None:
    assert read(hiringOrganization=company).company == name


@pytest.mark.parametrize(
    ("place", "text", "country"),
    [
        ("Berlin, Germany", "Berlin, Germany", None),
        ({"address": "Berlin, Germany"}, "Berlin, Germany", None),
        ({"@type": "PostalAddress", "addressLocality": "Berlin", "addressCountry": "DE"}, "Berlin, DE", "DE"),
        ({"address": [{"addressLocality": "Berlin"}, {"addressLocality": "Bonn"}]}, "Berlin", None),
        ({"address": {"addressLocality": ["Berlin", "Bonn"], "addressRegion": "Berlin"}}, "Berlin", None),
        ({"name": "The Rock", "geo": {"latitude": 1}}, "The Rock", None),
        ({"address": {"addressLocality": None, "addressCountry": "SE"}}, "SE", "SE"),
        ({"@type": "VirtualLocation"}, None, None),
        ([None, {}, {"address": {}}], None, None),
        ([{"address": {"addressLocality": "Lund"}}] * 3, "Lund", None),
    ],
)
def test_a_place_is_written_in_many_ways(place: Any, text: str | None, country: str | None) -> None:
    location = read(jobLocation=place).location
    assert (location and location["text"], location and location["country"]) == (text, country)


def test_where_applicants_may_live_stands_in_for_a_place() -> None:
    countries = [{"@type": "Country", "name": "USA"}, {"@type": "Country", "name": "Canada"}]
    posting = read(jobLocationType="TELECOMMUTE", applicantLocationRequirements=countries)
    assert posting.location is not None
    assert posting.location["text"] == "USA; Canada"
    assert posting.remote is True


@pytest.mark.parametrize(
    ("node", "remote"),
    [
        ({"jobLocationType": "TELECOMMUTE"}, True),
        ({"jobLocationType": ["OnSite", "telecommute"]}, True),
        ({"jobLocationType": "https://schema.org/TELECOMMUTE"}, True),
        ({"jobLocationType": "Fully Remote"}, True),
        ({"jobLocationType": "On-site"}, False),
        ({"jobLocationType": "Hybrid"}, False),
        ({"title": "Developer (remote)"}, True),
        ({"title": "Entwickler – 100 % Homeoffice"}, True),
        ({"title": "Remote Sensing Engineer"}, None),
        ({"title": "Developer (hybrid, 2 days remote)"}, False),
        ({"title": "Developer, not remote"}, False),
        ({"jobLocation": "Anywhere"}, True),
        ({"description": "<p>This is a fully remote position.</p>"}, True),
        ({"description": "You will repair remote controls; the remote team is nice."}, None),
        ({}, None),
    ],
)
def test_whether_it_is_remote_is_said_in_many_ways(node: dict[str, Any], *, remote: bool | None) -> None:
    assert read(**node).remote is remote


@pytest.mark.parametrize(
    ("written", "kinds"),
    [
        ("FULL_TIME", ["FULL_TIME"]),
        ("Full-time, Contract", ["FULL_TIME", "CONTRACTOR"]),
        (["Vollzeit", "FULL_TIME"], ["FULL_TIME"]),
        ("https://schema.org/PART_TIME", ["PART_TIME"]),
        ("CDI", ["FULL_TIME"]),
        ("Internship", ["INTERN"]),
        ("Zero hours", ["Zero hours"]),
        (None, []),
    ],
)
def test_kinds_of_employment_are_told_in_schema_orgs_words(written: Any, kinds: list[str]) -> None:
    assert read(employmentType=written).employment_type == kinds


@pytest.mark.parametrize(
    ("written", "day"),
    [
        ("2026-03-01", "2026-03-01"),
        ("2026-03-01T23:30:00-05:00", "2026-03-01"),
        ("Mar 1, 2026", "2026-03-01"),
        ("Sun Mar 01 2026 10:00:00 GMT+0000", "2026-03-01"),
        (1772323200, "2026-03-01"),
        (1772323200000, "2026-03-01"),
        ("1772323200000", "2026-03-01"),
        ({"@type": "Date", "@value": "2026-03-01"}, "2026-03-01"),
        ("2026-03", None),
        ("soon", None),
        ("", None),
        (float("nan"), None),
        (1e30, None),
        ("20260301120000", None),
        ("1" * 5000, None),
        ("123456789²", None),
    ],
)
def test_the_day_it_was_posted_is_written_in_many_ways(written: Any, day: str | None) -> None:
    assert read(datePosted=written).posted == day


@pytest.mark.parametrize(
    ("node", "url"),
    [
        ({"url": "jobs/1"}, "https://jobs.example/jobs/1"),
        ({"mainEntityOfPage": {"@id": "https://jobs.example/1"}}, "https://jobs.example/1"),
        ({"@id": "https://jobs.example/1"}, "https://jobs.example/1"),
        ({"@id": "#posting"}, None),
        ({"url": "http://[broken"}, None),
    ],
)
def test_its_url_is_found_in_several_places(node: dict[str, Any], url: str | None) -> None:
    assert read(**node).url == url


KEYS = st.sampled_from([*FULL, "@id", "address", "value", "name", "minValue", "jobLocationType", "estimatedSalary"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(["<p>", "&lt;b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, VALUES))
def test_no_shape_at_all_is_a_reason_to_fail(node: dict[str, Any]) -> None:
    read_node(node).as_item()
