"""Numbers in local spellings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.extraction.values import decimal_mark, number_in

SPELLINGS = [(",", "."), (".", ","), (" ", ","), ("\u202f", ","), ("\u2019", "."), ("'", "."), ("\xa0", ".")]


@given(st.integers(-(10**12), 10**12), st.integers(0, 99), st.sampled_from(SPELLINGS))
def test_what_is_written_in_any_spelling_is_read_as_it_was(
    number: int, cents: int, spelling: tuple[str, str]
) -> None:
    group, mark = spelling
    whole = f"{abs(number):,}".replace(",", group)
    sign = "-" if number < 0 else ""
    assert number_in(f"{sign}{whole}{mark}{cents:02} €") == float(f"{sign}{abs(number)}.{cents:02}")
    assert number_in(f"about {sign}{whole} pieces", whole=True) == number
    assert number_in(f"{sign}{whole}{mark}{cents:02}", mark=mark) == float(f"{sign}{abs(number)}.{cents:02}")


@given(st.text(max_size=60))
def test_any_text_is_a_number_or_refused(text: str) -> None:
    try:
        number = number_in(text)
    except ValueError:
        return
    assert isinstance(number, int | float)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1.234,56 €", 1234.56),
        ("$1,234.56", 1234.56),
        ("-$5", -5),
        ("\u22123.5 °C", -3.5),
        (".5", 0.5),
        ("12 345,67 zł", 12345.67),
        ("4.5 12 reviews", 4.5),
        ("2 for 10", 2),
        ("1.234.567", 1234567),
        ("12,34,567.8", 1234567.8),
        ("1,234", 1234),
        ("1.234", 1.234),
        ("0,125", 0.125),
        ("SKU-5", 5),
        ("10-20", 10),
        ("٤٢", 42),
    ],
)
def test_the_first_number_of_a_text_is_read(text: str, number: float) -> None:
    assert number_in(text) == number


@pytest.mark.parametrize("text", ["", "sold out", "12.03.2026", "1.2.3", ".", "9" * 400])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="it"):
        number_in(text)


def test_where_both_readings_are_possible_the_language_decides() -> None:
    assert number_in("1.234", usual_mark=decimal_mark("de-AT")) == 1234
    assert number_in("1,234", usual_mark=decimal_mark("de-AT")) == 1.234
    assert number_in("12.50", usual_mark=decimal_mark("de-AT")) == 12.5
    assert number_in("1.234", usual_mark=decimal_mark("de-CH")) == 1.234
    assert number_in("1.234", whole=True) == 1234
    assert number_in("1.234", mark=",") == 1234


def test_a_fraction_is_no_whole_number() -> None:
    assert number_in("3.00", whole=True) == 3
    with pytest.raises(ValueError, match="whole"):
        number_in("4.5", whole=True)
