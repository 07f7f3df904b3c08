"""Eggs, built from their sources as `setup.py bdist_egg` builds them."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

#: A spider whose item has the project's version.
SPIDER = """
import scrapy

class Teller(scrapy.Spider):
    "Tells its version."
    name = "teller"

    async def start(self):
        yield {"version": VERSION}
"""


def source(package: str, **modules: str) -> dict[str, str]:
    """The files of a project with one package: `settings` for its settings, `spiders` for its spiders, and so on."""
    files = {"__init__": "", "settings": f"SPIDER_MODULES = ['{package}.spiders']\n", **modules}
    return {f"{package}/{name}.py": text for name, text in files.items()}


def folder(path: Path) -> dict[str, str]:
    """The files of the project in a folder."""
    return {str(file.relative_to(path)): file.read_text() for file in path.rglob("*.py")}


def egg(files: Mapping[str, str | bytes], settings: str | None = None) -> bytes:
    """`settings` is the module that the egg's entry point names, by default that of the first package. Empty for
    none.
    """
    module = next(iter(files)).partition("/")[0] + ".settings" if settings is None else settings
    metadata: dict[str, str | bytes] = {"EGG-INFO/PKG-INFO": "Metadata-Version: 2.1\nName: project\nVersion: 1.0\n"}
    if module:
        metadata["EGG-INFO/entry_points.txt"] = f"[scrapy]\nsettings = {module}\n"
    content = BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in {**metadata, **files}.items():
            archive.writestr(name, text)
    return content.getvalue()


def teller(version: str, package: str = "teller") -> bytes:
    return egg(source(package, spiders=SPIDER.replace("VERSION", repr(version))))
