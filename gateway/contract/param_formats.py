"""Names that parameters of spiders must not have, and formats that JSON Schema does not define: selectors, patterns,
URLs.

The gateway checks them when a crawl is submitted, and the spider when it is built, both with this code. The libraries
are loaded by the first check only, because most crawls have none of these parameters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from gateway.contract.public_address import check_url
from gateway.errors import ForbiddenAddressError, InvalidRequestError

#: Arguments that Scrapy itself takes. As parameters they would break a spider with errors that are hard to
#: understand.
SCRAPYS_PARAMS = frozenset({"name", "settings", "crawler", "start_urls", "self", "cls", "crawler_or_spidercls"})
#: Names that a parameter must not have if the spider does not describe its parameters. Scrapy makes attributes of
#: parameters, so these names would replace the spider's allowed domains, its settings or its methods.
RESERVED_PARAMS = (
    SCRAPYS_PARAMS
    | {"depth", "spider_name", "allowed_domains", "custom_settings", "rules", "parse", "start", "start_requests"}
    | {"from_crawler", "update_settings", "handles_request", "close", "closed", "log", "logger"}
    | {"parse_start_url", "parse_with_rules", "process_results", "sitemap_filter"}
)
#: Requests per second, minute or hour.
RATE = re.compile(r"([1-9][0-9]{0,5})/([smh])")
_SECONDS = {"s": 1, "m": 60, "h": 3600}
#: The longest selector or pattern, in characters. Libraries recurse as deeply as the text is nested.
MAX_LENGTH = 1000
#: The largest compiled pattern, in bytes. RE2's own default is 8 MB for each pattern.
MAX_PATTERN_BYTES = 1 << 20
#: The functions of XPath 1.0 and of parsel. EXSLT's `re:` is left out, because it runs Python's `re`, which can take
#: forever.
_XPATH_FUNCTIONS = frozenset(
    {
        *("last", "position", "count", "id", "local-name", "namespace-uri", "name", "string", "concat"),
        *("starts-with", "contains", "substring-before", "substring-after", "substring"),
        *("string-length", "normalize-space"),
        *("translate", "boolean", "not", "true", "false", "lang", "number", "sum", "floor", "ceiling", "round"),
        "has-class",
    }
)
#: Other words that may stand before a parenthesis.
_XPATH_WORDS = frozenset({"text", "node", "comment", "processing-instruction", "and", "or", "div", "mod"})
_LITERAL = re.compile(r"\"[^\"]*\"|'[^']*'")
_CALL = re.compile(r"([\w:.-]+)\s*\(")
#: No CSS selector begins like this.
_XPATH_START = re.compile(r"\s*(?:\.{0,2}/|\(|@|\.\s*$)")


def parse_rate(text: str) -> float:
    """`40/s`, `30/m`, `100/h` as requests per second. Raises `ValueError`."""
    match = RATE.fullmatch(text)
    if match is None:
        raise ValueError("must be a number of requests per s, m or h, such as 30/m")
    return int(match[1]) / _SECONDS[match[2]]


def compile_css(css: str) -> Callable[[Any], Any]:
    """Evaluates a CSS selector on an lxml element, `::text` and `::attr()` included. Raises `ValueError`."""
    from cssselect import SelectorError  # noqa: PLC0415 - see above
    from lxml import etree  # noqa: PLC0415 - see above
    from parsel.csstranslator import HTMLTranslator  # noqa: PLC0415 - see above

    _check_length(css)
    try:
        return etree.XPath(HTMLTranslator().css_to_xpath(css), regexp=False, smart_strings=False)
    except (SelectorError, etree.XPathError, RecursionError) as error:
        raise ValueError(f"{css!r} is not a CSS selector: {error}") from error


def compile_xpath(xpath: str) -> Callable[[Any], Any]:
    """Evaluates an XPath expression, whose result can also be text, a number or a boolean. Raises `ValueError`."""
    from lxml import etree  # noqa: PLC0415 - see above

    _check_length(xpath)
    _check_names(xpath)
    try:
        return etree.XPath(xpath, regexp=False, smart_strings=False)
    except etree.XPathError as error:
        raise ValueError(f"{xpath!r} is not an XPath expression: {error}") from error


def compile_selector(selector: str) -> Callable[[Any], Any]:
    """Evaluates a selector, CSS or XPath. Raises `ValueError`."""
    return compile_xpath(selector) if is_xpath(selector) else compile_css(selector)


def is_xpath(selector: str) -> bool:
    """Whether a selector is XPath and not CSS: it begins with `/`, `./`, `../`, `(` or `@`, or is `.` alone."""
    return _XPATH_START.match(selector) is not None


def compile_pattern(pattern: str) -> Any:
    """An RE2 expression with the methods of Python's; matching takes time linear in the text. Raises `ValueError`."""
    import re2  # type: ignore[import-untyped] # noqa: PLC0415 - it ships no types; see above

    _check_length(pattern)
    options = re2.Options()
    options.max_mem = MAX_PATTERN_BYTES
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeError) as error:
        raise ValueError(f"{pattern!r} is not an RE2 expression: {_words(error)}") from error


def _check_http_url(url: str) -> None:
    """Check only the form of the URL. The egress rule decides which addresses are allowed."""
    try:
        with suppress(ForbiddenAddressError):
            check_url("url", url)
    except InvalidRequestError as error:
        raise ValueError(error.problem) from error


def _check_length(text: str) -> None:
    if not text.strip():
        raise ValueError("is empty")
    if len(text) > MAX_LENGTH:
        raise ValueError(f"has {len(text)} characters; {MAX_LENGTH} are allowed")


def _check_names(xpath: str) -> None:
    """Refuse unknown functions and variables. Libraries would refuse them only when they are evaluated, which may be
    on the thousandth page.
    """
    bare = _LITERAL.sub("''", xpath)
    if "$" in bare:
        raise ValueError(f"{xpath!r} uses a variable, which is not supported")
    names = [name.rpartition("::")[2] for name in _CALL.findall(bare)]
    unknown = next((name for name in names if name not in _XPATH_FUNCTIONS | _XPATH_WORDS), None)
    if unknown:
        raise ValueError(f"{xpath!r} calls {unknown}(), which is not a function of XPath 1.0")


def _words(error: Exception) -> str:
    """The reason of an error as text. RE2's errors have it as bytes."""
    reason = error.args[0] if error.args else ""
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(error)


#: Format → a check that raises `ValueError` with a sentence. `selector` takes CSS and XPath.
FORMATS: Mapping[str, Callable[[str], object]] = {
    "selector": compile_selector,
    "css-selector": compile_css,
    "xpath": compile_xpath,
    "re2": compile_pattern,
    "http-url": _check_http_url,
}
