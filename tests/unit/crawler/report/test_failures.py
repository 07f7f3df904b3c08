"""Which requests have failed."""

from __future__ import annotations

from scrapy.exceptions import IgnoreRequest

from crawler.net.response_limits import UnusableResponseError
from crawler.report.failures import is_error


def test_a_page_that_no_spider_may_be_given_is_an_error_however_its_message_is_worded() -> None:
    assert is_error(UnusableResponseError("in other words"))
    assert not is_error(IgnoreRequest("in other words"))
