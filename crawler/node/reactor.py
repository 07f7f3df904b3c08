"""Twisted's reactor, for mypy: it is declared as a zope interface, whose methods mypy takes for functions."""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor as _reactor

reactor: Any = _reactor
