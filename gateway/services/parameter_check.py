"""Whether a crawl's `params` suit the JSON Schema that its spider publishes."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import orjson
from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError, ValidationError

from gateway.domain.errors import ForbiddenAddressError, InvalidRequestError
from gateway.domain.param_formats import FORMATS
from gateway.domain.public_address import Network, check_url

#: Schemas whose validators are kept; each spider of each version has one.
_KEPT_VALIDATORS = 256
#: Characters of a value, and of a whole message, that are repeated to whoever sent it.
_SHOWN_VALUE = 100
_SHOWN_MESSAGE = 400
_URL = "http-url"


class ParameterCheck:
    """Checks against schemas, formats included. URLs must also lead where a crawl may go."""

    def __init__(self, allowed_networks: Iterable[Network] = ()) -> None:
        self._allowed = tuple(allowed_networks)
        self._formats = FormatChecker(formats=())
        for name, check in FORMATS.items():
            on_text = functools.partial(_check_text, self._reachable(check) if name == _URL else check)
            self._formats.checks(name, raises=(ValueError, InvalidRequestError))(on_text)
        self._validator = functools.lru_cache(_KEPT_VALIDATORS)(self._build)

    def check(self, params: dict[str, Any], schema: dict[str, Any]) -> None:
        """Raises `InvalidRequestError`, or `ForbiddenAddressError` for a URL, that names the field.

        The first fault is enough: what all of them were would take as long as the sender likes.
        """
        try:
            error = next(self._validator(orjson.dumps(schema)).iter_errors(params), None)
        except (SchemaError, RecursionError) as broken:
            raise InvalidRequestError("spider", "the schema of its parameters cannot be used") from broken
        if error is not None:
            _refuse(_culprit(error), sorted(schema.get("properties", {})))

    def _build(self, schema: bytes) -> Draft202012Validator:
        loaded = orjson.loads(schema)
        Draft202012Validator.check_schema(loaded)
        if any(reference not in _anchors(loaded) for reference in _references(loaded)):
            # jsonschema would fetch a remote one
            raise SchemaError("it refers to what is not in it")
        return Draft202012Validator(loaded, format_checker=self._formats)

    def _reachable(self, check: Callable[[str], object]) -> Callable[[str], object]:
        def check_reachable(url: str) -> None:
            check(url)
            check_url("", url, self._allowed)

        return check_reachable


def _check_text(check: Callable[[str], object], value: object) -> bool:
    # what else it may be is said by `type`
    if isinstance(value, str):
        check(value)
    return True


def _anchors(schema: dict[str, Any]) -> set[str]:
    return {f"#/$defs/{name}" for name in schema.get("$defs", {})}


def _references(schema: Any) -> Iterator[Any]:
    if isinstance(schema, dict):
        for name, inner in schema.items():
            if name in {"$ref", "$dynamicRef"}:
                yield inner
            yield from _references(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _references(inner)


def _culprit(error: ValidationError) -> ValidationError:
    """What is really wrong where something may be one thing or another.

    "Is not valid under any of the given schemas" helps nobody: the alternative that was meant is the one whose type
    (and tag, where objects are told apart by a constant) fits what was sent.
    """
    while error.context:
        branches: dict[Any, list[ValidationError]] = defaultdict(list)
        for inner in error.context:
            branches[inner.schema_path[0]].append(inner)
        meant = [faults for faults in branches.values() if not any(_is_other_kind(fault) for fault in faults)]
        if not meant:
            return _no_alternative(error)
        error = min(meant, key=len)[0]
    return error


def _is_other_kind(fault: ValidationError) -> bool:
    return (fault.validator == "type" and not fault.path) or (fault.validator == "const" and len(fault.path) == 1)


def _no_alternative(error: ValidationError) -> ValidationError:
    """One error out of those of all alternatives: the tags that there are, else the types."""
    faults = [fault for fault in error.context or () if _is_other_kind(fault)]
    tagged = [fault for fault in faults if fault.validator == "const"]
    chosen = (tagged or faults)[0]
    names = dict.fromkeys(str(name) for fault in tagged or faults for name in _names(fault.validator_value))
    if not tagged:
        names.pop("null", None)
    words = "one of" if tagged else "of type"
    chosen.message = f"{_shown(chosen.instance)} is not {words} {', '.join(repr(name) for name in names)}"
    return chosen


def _names(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _refuse(error: ValidationError, known: list[str]) -> NoReturn:
    path = ["params", *(str(part) for part in error.absolute_path)]
    message = _message(error)
    sent: Any = error.instance
    if error.validator == "additionalProperties" and isinstance(error.schema, dict):
        known = sorted(error.schema.get("properties", {}))
        path += sorted(set(sent) - set(known))[:1]
        message = f"there is no such parameter; there is {', '.join(known)}" if known else "takes no parameters"
    elif error.validator == "required":
        path += [name for name in _names(error.validator_value) if name not in sent][:1]
        message = "is required"
    field = ".".join(path)
    kind = ForbiddenAddressError if isinstance(error.cause, ForbiddenAddressError) else InvalidRequestError
    raise kind(field, message, detail={"field": field, "known": known})


def _message(error: ValidationError) -> str:
    if isinstance(error.cause, InvalidRequestError):
        return error.cause.message.removeprefix(f"{error.cause.field}: ")
    message = str(error.cause) if error.cause else error.message.replace(repr(error.instance), _shown(error.instance))
    return message if len(message) <= _SHOWN_MESSAGE else f"{message[:_SHOWN_MESSAGE]}…"


def _shown(value: Any) -> str:
    text = repr(value)
    if len(text) <= _SHOWN_VALUE:
        return text
    return "the object" if isinstance(value, dict) else "the list" if isinstance(value, list) else f"{text[:60]}…"
