from __future__ import annotations

from typing import Any

from gateway.cli.up import PageFinding, findings


def _page(path: str, **facts: Any) -> dict[str, Any]:
    url = f"http://site.example{path}"
    return {"type": "page", "url": url, "title": "T", "description": "D", "redirects": [], **facts}


def _link(path: str, status: int | None, error: str | None = None) -> dict[str, Any]:
    url = f"http://site.example{path}"
    return {"type": "broken_link", "url": url, "page": "http://site.example/", "status": status, "error": error}


def test_a_sound_page_is_no_finding() -> None:
    assert not findings([_page("/")])


def test_the_gravest_come_first() -> None:
    moved = [{"url": "http://site.example/old", "status": 301}]
    items = [
        _page("/a", title=None, description=None),
        _page("/b", redirects=moved),
        _link("/x", 404),
        _link("/y", 500),
    ]
    assert [finding.kind for finding in findings(items)] == [
        *("server error", "broken link", "no title", "no description", "redirect")
    ]


def test_a_link_without_an_answer_says_why() -> None:
    assert findings([_link("/x", None, "refused")]) == [
        PageFinding("broken link", "http://site.example/", "/x (refused)")
    ]
