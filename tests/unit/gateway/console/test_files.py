"""What holds for every template, script and vendored file of the console."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

import gateway.console
from gateway.console.pages import ENVIRONMENT

FOLDER = Path(gateway.console.__file__).parent
TEMPLATES = sorted((FOLDER / "templates").rglob("*.html"))
STATIC = FOLDER / "static"
SCRIPTS = sorted((STATIC / "js").rglob("*.js"))
PAGES = [path for path in TEMPLATES if '{% extends "base.html" %}' in path.read_text()]
#: What the policy of the pages refuses, or would not protect from.
FORBIDDEN = {
    "an inline style": r"<style|\sstyle\s*=",
    "a handler": r"\son[a-z]+\s*=",
    "an inline script": r"<script(?![^>]*\ssrc=)",
    "htmx that runs text as code": r"hx-on|hx-vals\s*=\s*[\"']js:|hx-trigger=\"[^\"]*\[",
    "text that is not escaped": r"\|\s*safe\b|autoescape\s+false",
    "an address of another host": r"(?:src|href)=\"(?:https?:)?//",
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_template_keeps_to_the_policy(name: str) -> None:
    assert not [path for path in TEMPLATES if re.search(FORBIDDEN[name], path.read_text())]


def test_a_template_can_be_read() -> None:
    for path in TEMPLATES:
        ENVIRONMENT.get_template(path.relative_to(FOLDER / "templates").as_posix())


def test_a_page_has_a_title_and_the_one_heading_of_the_frame() -> None:
    for path in PAGES:
        text = path.read_text()
        assert re.search(r"{% block title %}.+?{% endblock %}", text, re.DOTALL), path
        assert "<h1" not in text, path
        assert "{% block main %}" in text, path


def test_the_frame_has_one_heading() -> None:
    assert (FOLDER / "templates" / "base.html").read_text().count("<h1") == 1


def test_a_script_puts_no_data_into_markup() -> None:
    makes = re.compile(r"innerHTML|outerHTML\s*=|insertAdjacentHTML|document\.write|\beval\(|new Function")
    assert not [path for path in SCRIPTS if makes.search(path.read_text())]


def test_each_script_is_used() -> None:
    used = "".join(path.read_text() for path in (*TEMPLATES, *SCRIPTS))
    for path in SCRIPTS:
        name = path.relative_to(STATIC / "js").as_posix()
        assert re.search(rf"[\"'](?:\./|js/|\.\./)?{re.escape(name)}[\"']", used), name


def test_what_others_wrote_is_as_they_published_it() -> None:
    text = (STATIC / "vendor" / "README.md").read_text()
    told = dict(re.findall(r"^\| `([0-9a-f]{64})` \| `([^`]+)` \|$", text, re.MULTILINE))
    found = {
        hashlib.sha256(path.read_bytes()).hexdigest(): path.name for path in (STATIC / "vendor").glob("*.[jc]*s")
    }
    assert found == told
