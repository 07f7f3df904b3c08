"""`make bench`: every benchmark, one table."""

from __future__ import annotations

from bench import crawls
from bench.table import render

if __name__ == "__main__":
    print(render(crawls.run()))
