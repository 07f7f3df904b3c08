"""Metrics whose values are known already, as the client library wants them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from prometheus_client.core import GaugeMetricFamily

_PREFIX = "discoverybot_"
Name = TypeVar("Name", bound=str)
Names = TypeVar("Names", bound=tuple[str, ...])


def gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(_PREFIX + name, text, value=value)


def labelled(name: str, text: str, label: str, values: Mapping[Name, float]) -> GaugeMetricFamily:
    """By one label."""
    return many(name, text, (label,), {(key,): value for key, value in values.items()})


def many(name: str, text: str, labels: Sequence[str], values: Mapping[Names, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(_PREFIX + name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, float(value))
    return family
