"""`baseSalary` in the shapes that are found in the wild."""

from __future__ import annotations

from typing import Any

import pytest

from crawler.job_posting.salary import salary_of


def amount(value: Any, **more: Any) -> dict[str, Any]:
    return {"@type": "MonetaryAmount", "value": value, **more}


SHAPES: list[tuple[dict[str, Any], Any, Any, str | None, str | None]] = [
    (
        {"baseSalary": amount({"minValue": 40_000, "maxValue": 50_000, "unitText": "YEAR"}, currency="EUR")},
        *(40_000, 50_000, "EUR", "year"),
    ),
    ({"baseSalary": amount({"value": 40.0, "unitText": "HOUR"}, currency="usd")}, 40, 40, "USD", "hour"),
    ({"baseSalary": amount("38,500", currency="GBP", unitText="per year")}, 38_500, 38_500, "GBP", "year"),
    ({"baseSalary": 40_000, "salaryCurrency": "USD"}, 40_000, 40_000, "USD", None),
    ({"baseSalary": "40000", "salaryCurrency": "CHF"}, 40_000, 40_000, "CHF", None),
    ({"baseSalary": "£28,000 - £32,000 a year"}, 28_000, 32_000, "GBP", "year"),
    (
        {"baseSalary": {"minValue": "£20,000", "maxValue": "£25,000", "currency": "£", "unitText": "ANN"}},
        *(20_000, 25_000, "GBP", "year"),
    ),
    (
        {"baseSalary": amount({"value": "30000-35000", "unitText": "ANNUAL"}, currency="EUR")},
        *(30_000, 35_000, "EUR", "year"),
    ),
    ({"baseSalary": amount([18, "21.50"], currency="USD", unitText="HUR")}, 18, 21.5, "USD", "hour"),
    ({"baseSalary": [{}, None, amount({"minValue": 3_000, "unitText": "MON"})]}, 3_000, None, None, "month"),
    (
        {"baseSalary": amount({"minValue": 0, "maxValue": "", "value": 15, "unitText": "Hourly"})},
        15,
        15,
        None,
        "hour",
    ),
    ({"baseSalary": amount({"minValue": 60_000, "maxValue": 50_000}, currency="USD")}, 50_000, 60_000, "USD", None),
    (
        {"baseSalary": amount({"maxValue": "70000.00", "unitText": "Jahr"}, currency="EUR")},
        None,
        70_000,
        "EUR",
        "year",
    ),
    (
        {"baseSalary": {"@type": "PriceSpecification", "price": "25", "priceCurrency": "CAD", "unitText": "HOUR"}},
        *(25, 25, "CAD", "hour"),
    ),
    ({"baseSalary": amount(amount({"value": 100, "unitText": "DAY"}), currency="EUR")}, 100, 100, "EUR", "day"),
    (
        {
            "estimatedSalary": [
                {"percentile10": 90_000, "percentile90": 120_000, "duration": "P1Y", "currency": "USD"}
            ]
        },
        *(90_000, 120_000, "USD", "year"),
    ),
    ({"baseSalary": amount({"minValue": 10**400, "maxValue": 1e300, "value": 15})}, 15, 15, None, None),
    ({"baseSalary": "null", "estimatedSalary": {"median": 900, "unitText": "WEEK"}}, 900, 900, None, "week"),
]


@pytest.mark.parametrize(("posting", "low", "high", "currency", "period"), SHAPES)
def test_a_salary_is_found_in_whatever_shape_it_has(
    posting: dict[str, Any], low: float | None, high: float | None, currency: str | None, period: str | None
) -> None:
    read = salary_of(posting)
    assert read is not None
    assert (read["min"], read["max"], read["currency"], read["period"]) == (low, high, currency, period)


@pytest.mark.parametrize(
    "value",
    [None, "", [], {}, 0, "0", True, float("nan"), amount({}), amount({"minValue": None}), amount(None), [[]], "N/A"],
)
def test_where_no_amount_is_said_there_is_none(value: Any) -> None:
    read = salary_of({"baseSalary": value})
    assert read is None or (read["min"], read["max"]) == (None, None)


def test_the_words_are_kept_where_there_is_no_amount() -> None:
    read = salary_of({"baseSalary": "Competitive &amp; fair"})
    assert read is not None
    assert (read["min"], read["text"]) == (None, "Competitive &amp; fair")
