"""Learns what is normal for a dataset from its accepted complete runs, and compares a run with it.

Three kinds of figures are learned, each by a method of its own:

- *levels* (items, duration, shares of failed and refused requests, the median of a number's log |value|): the median
  of the last few runs is the forecast for the next run. The errors of earlier forecasts (their MAD, and the largest
  error) decide how far a run may be off. So slow growth moves the forecast, and seasons make the bounds wider;
- *shares* (how many items fill a field, and the types of its values): a beta-binomial distribution, because runs
  differ from each other by more than chance. The bound is the lower Wilson bound, less five points;
- *the barest window*: the fewest filled values among 50 items in a row. It is for runs that are still going on. Where
  the first pages of a listing differ from its later pages, they did so in earlier runs too, so the bound is low.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from math import ceil, comb, exp, hypot, log, sqrt
from statistics import fmean, median
from typing import Any, NamedTuple, Self

from attrs import Factory, asdict, frozen

from gateway.datasets.figures import MAX_DISTINCT, STEP, TYPES, WINDOW, FieldFigures, JsonType, RunFigures, Sketch

#: There are findings once this many runs are known, and findings hold a run once this many are known.
SPEAKS_AFTER, HOLDS_AFTER = 5, 10
#: Learn from this many of the newest accepted runs. The median of the last `LEVEL_RUNS` is the forecast: the days of
#: a week, so that a weekend does not move it.
LEARNED_RUNS, LEVEL_RUNS = 30, 7
#: The first runs, for which no forecast is tried while learning.
_FIRST_FORECAST = 3
#: How many standard deviations a run may be off the forecast. Few runs give a poor estimate of the deviation, so the
#: reach is multiplied by `1 + 4 / runs`.
_REACH = 5.0
#: The standard deviation of a normal distribution whose MAD is 1.
_SIGMA_OF_MAD = 1.4826
#: The half-width of the confidence interval of a run's median, in standard errors.
_MEDIAN_ERRORS = 3.0
#: A run may be off the forecast by at least this much (a log, or a share) more than any earlier run was.
_AS_BEFORE = 0.02
#: Smaller deviations are never findings, however steady the earlier runs were: a third fewer items, three times as
#: many items or seconds (logs), ten points of the requests, 1.65 times the number (a log), five points of coverage.
_FEWER_ITEMS, _MORE_ITEMS, _MORE_SECONDS = log(1.5), log(3), log(3)
_MORE_FAILURES, _OTHER_SIZES, _LOWER_SHARE = 0.1, 0.5, 0.05
#: A field needs this many values in a run before their size, or whether they all are the same, is judged.
_ENOUGH_VALUES = 20
#: The probability that a sound run is stopped by chance is at most this. It is divided among the fields.
_STOPPED_BY_CHANCE = 1e-5
#: A window stops a run only if it has less than half of the normal number of values, or if more than half of its
#: responses are refused.
_COLLAPSED = 0.5
#: A field's main type is watched only if at least this share of the values has it.
_MAIN_TYPE = 0.5


class Stage(StrEnum):
    """How far what is normal for a dataset has been learned."""

    #: Too few runs are known: there are no findings.
    LEARNING = "learning"
    #: Enough runs are known for findings, but findings do not hold a run yet.
    OBSERVING = "observing"
    HOLDING = "holding"


class Severity(StrEnum):
    #: The run is held, or paused if it is going on.
    HOLD = "hold"
    NOTICE = "notice"


class FindingCode(StrEnum):
    ITEMS_DROPPED = "items_dropped"
    ITEMS_RISEN = "items_risen"
    SLOWER = "slower"
    FAILURES_UP = "failures_up"
    #: More responses than usual have a status of 400 or more.
    BLOCK_PAGES = "block_pages"
    FIELD_LOWER = "field_lower"
    #: Less than half of what is normal.
    FIELD_COLLAPSED = "field_collapsed"
    TYPE_FLIPPED = "type_flipped"
    VALUES_SHIFTED = "values_shifted"
    #: All values of the field are the same, although they differed in earlier runs.
    VALUES_SAME = "values_same"


_NOTICES = frozenset({FindingCode.SLOWER})


# --- what is learned


@frozen
class Level:
    """A forecast for the next run, and the errors of the forecasts for earlier runs."""

    level: float
    #: The standard deviation of the errors, from their MAD.
    scale: float
    #: The largest errors: how far a run was below its forecast (at most 0), and above it (at least 0).
    lowest: float
    highest: float

    @classmethod
    def of(cls, series: Sequence[float]) -> Self:
        """`series`: the figure in each run, the oldest first; at least one run."""
        errors = [series[at] - _forecast(series[:at]) for at in range(_FIRST_FORECAST, len(series))] or [0.0]
        middle = median(errors)
        scale = _SIGMA_OF_MAD * median(abs(error - middle) for error in errors)
        return cls(_forecast(series), scale, min(*errors, 0.0), max(*errors, 0.0))

    def lower(self, reach: float, floor: float, noise: float = 0.0) -> float:
        """The lower bound. `noise`: the standard deviation by chance, which is large for a run with few requests."""
        return self.level - self._far(-self.lowest, reach, floor, noise)

    def upper(self, reach: float, floor: float, noise: float = 0.0) -> float:
        return self.level + self._far(self.highest, reach, floor, noise)

    def _far(self, farthest: float, reach: float, floor: float, noise: float) -> float:
        scale = hypot(self.scale, noise)
        return max(floor, reach * scale, farthest + max(scale, _AS_BEFORE))


def _forecast(series: Sequence[float]) -> float:
    return median(series[-LEVEL_RUNS:])


@frozen
class Share:
    """A beta-binomial distribution. `alike`: the correlation between two items of one run (0: they are as independent
    as items of different runs). `weight`: the number of independent items from which `mean` is known.
    """

    mean: float
    alike: float
    weight: float

    @classmethod
    def of(cls, counts: Sequence[tuple[int, int]]) -> Self:
        """`counts`: `(hits, items)` of each run; at least one run has items."""
        shares = [hits / items for hits, items in counts if items]
        sizes = [items for _, items in counts if items]
        mean = fmean(shares)
        alike = _alike(shares, sizes, mean)
        return cls(mean, alike, sum(_independent(items, alike) for items in sizes))

    def lower(self, items: int, reach: float) -> float:
        """The lower Wilson bound for a run with this many items, less five points."""
        # The variance of the run's share is added to the variance of the mean, which is known from a limited number
        # of items. Both are proportional to 1 / items, so the sum is the variance for `number` items.
        number = 1 / (1 / _independent(items, self.alike) + 1 / self.weight)
        square = reach * reach / number
        middle = self.mean + square / 2
        half = sqrt(square * (self.mean * (1 - self.mean) + square / 4))
        return (middle - half) / (1 + square) - _LOWER_SHARE


def _alike(shares: Sequence[float], sizes: Sequence[int], mean: float) -> float:
    """The intraclass correlation, by the method of moments."""
    binomial = mean * (1 - mean)
    size = len(sizes) / sum(1 / items for items in sizes)
    if not binomial or size <= 1 or not shares[1:]:
        return 0.0
    variance = sum((share - mean) ** 2 for share in shares) / (len(shares) - 1)
    return min(1.0, max(0.0, (variance * size / binomial - 1) / (size - 1)))


def _independent(items: int, alike: float) -> float:
    """The effective sample size: how many independent items would carry as much information."""
    return items / (1 + (items - 1) * alike)


@frozen
class FieldNormal:
    coverage: Share
    #: For each type that occurs: its share of the filled values.
    types: dict[JsonType, Share]
    #: The fewest filled values in any window; `None` if no run had a whole window. `main_type` is the type of most
    #: values, and `barest_type` the fewest values of this type in any window; both are `None` if it is not watched.
    barest: int | None
    main_type: JsonType | None
    barest_type: int | None
    #: The level of the median of log |value|; `None` if less than half of the values are numbers.
    sizes: Level | None
    #: Whether each run had many different values.
    is_varied: bool

    @classmethod
    def of(cls, runs: Sequence[tuple[FieldFigures, int]]) -> Self:
        """`runs`: for each run, the field's figures and the number of items; at least one run fills the field."""
        filled = [(one, one.filled) for one, _ in runs if one.filled]
        types = {kind: Share.of([(one.count(kind), count) for one, count in filled]) for kind in TYPES}
        types = {kind: share for kind, share in types.items() if share.mean}
        main = max(types, key=lambda kind: types[kind].mean)
        sizes = [one.sizes for one, count in filled if one.sizes.count * 2 >= count]
        is_number = len(sizes) * 2 > len(filled)
        is_watched = types[main].mean >= _MAIN_TYPE
        return cls(
            coverage=Share.of([(one.filled, items) for one, items in runs]),
            types=types,
            barest=_barest(runs, 0),
            main_type=main if is_watched else None,
            barest_type=_barest(runs, TYPES.index(main) + 1) if is_watched else None,
            sizes=Level.of([one.median() for one in sizes]) if is_number else None,
            is_varied=all(len(one.distinct) >= MAX_DISTINCT for one, count in filled if count >= _ENOUGH_VALUES),
        )


def _barest(runs: Sequence[tuple[FieldFigures, int]], place: int) -> int | None:
    return min((one.fewest[place] for one, _ in runs if one.fewest is not None), default=None)


@frozen
class Normal:
    """What is normal for a dataset since its last reset. Before `SPEAKS_AFTER` runs, only `runs` is set."""

    #: How many runs were learned from.
    runs: int = 0
    #: The levels of log(items + 1), of log seconds, and of the shares of failed requests and refused responses.
    items: Level | None = None
    seconds: Level | None = None
    failed: Level | None = None
    refused: Level | None = None
    #: The largest share of refused responses in any window of any run.
    most_refused: float = 0.0
    #: By name: the fields that are known from at least `SPEAKS_AFTER` runs.
    fields: dict[str, FieldNormal] = Factory(dict)

    @property
    def stage(self) -> Stage:
        if self.runs < SPEAKS_AFTER:
            return Stage.LEARNING
        return Stage.OBSERVING if self.runs < HOLDS_AFTER else Stage.HOLDING

    def holds(self, findings: Sequence[RunFinding]) -> bool:
        """Whether a run with these findings is to be held, or to be paused."""
        return self.stage is Stage.HOLDING and any(finding.severity is Severity.HOLD for finding in findings)

    def to_dict(self) -> dict[str, Any]:
        """For BSON and JSON: names of fields are values, never keys."""
        known = asdict(self, filter=lambda attribute, _: attribute.name != "fields")
        fields = [{"name": name, **asdict(one, value_serializer=_plain)} for name, one in self.fields.items()]
        return {**known, "fields": fields}

    @classmethod
    def from_dict(cls, known: Mapping[str, Any]) -> Self:
        return cls(
            runs=int(known["runs"]),
            most_refused=float(known["most_refused"]),
            fields={one["name"]: _read_field(one) for one in known["fields"]},
            **{name: known[name] and Level(**known[name]) for name in ("items", "seconds", "failed", "refused")},
        )


def _plain(_: Any, __: Any, value: Any) -> Any:
    return value.value if isinstance(value, JsonType) else value


def _read_field(known: Mapping[str, Any]) -> FieldNormal:
    read = {
        "coverage": Share(**known["coverage"]),
        "types": {JsonType(kind): Share(**share) for kind, share in known["types"].items()},
        "main_type": known["main_type"] and JsonType(known["main_type"]),
        "sizes": known["sizes"] and Level(**known["sizes"]),
    }
    return FieldNormal(**{name: value for name, value in known.items() if name != "name"} | read)


def learn(accepted: Sequence[RunFigures]) -> Normal:
    """Learn what is normal. `accepted`: the figures of the accepted complete runs since the last reset ("this is the
    new normal"), the oldest first. Only the newest `LEARNED_RUNS` count.
    """
    runs = accepted[-LEARNED_RUNS:]
    if len(runs) < SPEAKS_AFTER:
        return Normal(len(runs))
    seconds = [log(max(run.seconds, 1.0)) for run in runs if run.seconds is not None]
    return Normal(
        runs=len(runs),
        items=Level.of([log(run.items + 1) for run in runs]),
        seconds=Level.of(seconds) if seconds else None,
        failed=Level.of([_share(run.failed, run.pages + run.failed) for run in runs]),
        refused=Level.of([_share(run.refused, run.responses) for run in runs]),
        most_refused=max(run.most_refused or 0.0 for run in runs),
        fields=dict(_learn_fields(runs)),
    )


def _learn_fields(runs: Sequence[RunFigures]) -> Iterator[tuple[str, FieldNormal]]:
    for name in dict.fromkeys(name for run in reversed(runs) for name in run.fields):
        # runs before the first one with the field do not count, nor do runs that had too many fields to count it
        first = next(at for at, run in enumerate(runs) if name in run.fields)
        known = [
            (run.fields.get(name) or FieldFigures.after(run.items // STEP), run.items)
            for run in runs[first:]
            if run.items and (name in run.fields or not run.is_full)
        ]
        if len(known) >= SPEAKS_AFTER and any(one.filled for one, _ in known):
            yield name, FieldNormal.of(known)


def _share(count: int, of: int) -> float:
    return count / of if of else 0.0


# --- the comparison of a run with what is normal


class Measure(StrEnum):
    """What is compared with what is normal for a dataset."""

    ITEMS = "items"
    SECONDS = "seconds"
    #: The share of failed requests, and of refused responses.
    FAILED = "failed"
    REFUSED = "refused"
    #: Four measures of a field: the share of items that fill it, the share of its values that have its main type, the
    #: median of its |numbers|, and its number of different values, counted up to `MAX_DISTINCT`.
    COVERAGE = "coverage"
    TYPE = "type"
    SIZE = "size"
    DISTINCT = "distinct"


@frozen
class Comparison:
    measure: Measure
    value: float
    normal: float
    #: The bounds; `None` where a side has no bound.
    lower: float | None = None
    upper: float | None = None
    field: str | None = None
    #: The main type, if the measure is `TYPE`.
    type: JsonType | None = None

    @property
    def bound(self) -> float | None:
        """The bound that the value exceeds or falls below; `None` if it is within the bounds."""
        if self.lower is not None and self.value < self.lower:
            return self.lower
        return self.upper if self.upper is not None and self.value > self.upper else None


def compare(figures: RunFigures, normal: Normal) -> list[Comparison]:
    """Compare an ended run with what is normal, by measure and field. Empty while too few runs are known."""
    if normal.stage is Stage.LEARNING:
        return []
    reach = _REACH * (1 + 4 / normal.runs)
    compared = [*_compare_run(figures, normal, reach)]
    for name, field in normal.fields.items():
        found = figures.fields.get(name, _NOTHING)
        if figures.items and (found is not _NOTHING or not figures.is_full):
            compared += _compare_field(name, found, figures.items, field, reach)
    return compared


_NOTHING = FieldFigures()


def _compare_run(figures: RunFigures, normal: Normal, reach: float) -> Iterator[Comparison]:
    if (level := normal.items) is not None:
        lower, upper = exp(level.lower(reach, _FEWER_ITEMS)) - 1, exp(level.upper(reach, _MORE_ITEMS)) - 1
        yield Comparison(Measure.ITEMS, figures.items, exp(level.level) - 1, lower, upper)
    if (level := normal.seconds) is not None and figures.seconds is not None:
        upper = exp(level.upper(reach, _MORE_SECONDS))
        yield Comparison(Measure.SECONDS, figures.seconds, exp(level.level), upper=upper)
    requests = figures.pages + figures.failed
    for measure, level, count, of in (
        (Measure.FAILED, normal.failed, figures.failed, requests),
        (Measure.REFUSED, normal.refused, figures.refused, figures.responses),
    ):
        if level is not None and of:
            noise = sqrt(level.level * (1 - level.level) / of)
            yield Comparison(measure, count / of, level.level, upper=level.upper(reach, _MORE_FAILURES, noise))


def _compare_field(
    name: str, found: FieldFigures, items: int, normal: FieldNormal, reach: float
) -> Iterator[Comparison]:
    filled, coverage = found.filled, normal.coverage
    lower = coverage.lower(items, reach)
    yield Comparison(Measure.COVERAGE, filled / items, coverage.mean, lower, field=name)
    if normal.main_type is not None and filled:
        kind, share = normal.main_type, normal.types[normal.main_type]
        lower = share.lower(filled, reach)
        yield Comparison(Measure.TYPE, found.count(kind) / filled, share.mean, lower, field=name, type=kind)
    numbers = found.sizes.count
    if normal.sizes is not None and numbers >= _ENOUGH_VALUES and numbers * 2 >= filled:
        low, middle, high = _median(found.sizes)
        lower = exp(normal.sizes.lower(reach, _OTHER_SIZES) - (high - middle))
        upper = exp(normal.sizes.upper(reach, _OTHER_SIZES) + (middle - low))
        yield Comparison(Measure.SIZE, exp(middle), exp(normal.sizes.level), lower, upper, name)
    if normal.is_varied and filled >= _ENOUGH_VALUES:
        yield Comparison(Measure.DISTINCT, len(found.distinct), MAX_DISTINCT, 2, field=name)


def _median(sizes: Sketch) -> list[float]:
    """The lower bound of the median's confidence interval, the median, and the upper bound. The interval assumes no
    distribution: where values have two typical sizes, the median may jump between them by chance.
    """
    half = min(_MEDIAN_ERRORS / (2 * sqrt(sizes.count)), 0.5)
    return sizes.quantiles(0.5 - half, 0.5, 0.5 + half)


# --- findings


@frozen
class RunFinding:
    """One way in which a run is not normal."""

    code: FindingCode
    value: float
    normal: float
    bound: float
    field: str | None = None
    #: The usual type, which the values do not have, if the code is `TYPE_FLIPPED`.
    type: JsonType | None = None
    #: Whether it was found in one window of items or responses; otherwise, in the whole run.
    in_window: bool = False

    @property
    def severity(self) -> Severity:
        return Severity.NOTICE if self.code in _NOTICES else Severity.HOLD

    @property
    def sentence(self) -> str:
        """The finding as an English sentence."""
        words = _WORDS[self.code]
        shown = {name: words.form(getattr(self, name)) for name in ("value", "normal", "bound")}
        what = words.sentence.format(field=self.field, type=self.type, **shown)
        where = f"In {WINDOW} {words.window} in a row: " if self.in_window else ""
        return where + what + words.bounds.format(**shown)


def judge(figures: RunFigures, normal: Normal) -> list[RunFinding]:
    """The findings about an ended run. `Normal.holds` decides whether they hold it."""
    found = [
        RunFinding(_code(one), one.value, one.normal, one.bound, one.field, one.type)
        for one in compare(figures, normal)
        if one.bound is not None
    ]
    said = {(finding.code, finding.field) for finding in found}
    # a fault near the end of a long run hardly changes the shares of the whole run, but it is found in a window
    running = judge_running(figures, normal)
    return found + [finding for finding in running if (finding.code, finding.field) not in said]


def _code(compared: Comparison) -> FindingCode:
    if compared.measure is Measure.ITEMS:
        return FindingCode.ITEMS_DROPPED if compared.value < compared.normal else FindingCode.ITEMS_RISEN
    if compared.measure is Measure.COVERAGE:
        has_collapsed = compared.value < compared.normal * _COLLAPSED
        return FindingCode.FIELD_COLLAPSED if has_collapsed else FindingCode.FIELD_LOWER
    return _CODES[compared.measure]


_CODES = {
    Measure.SECONDS: FindingCode.SLOWER,
    Measure.FAILED: FindingCode.FAILURES_UP,
    Measure.REFUSED: FindingCode.BLOCK_PAGES,
    Measure.TYPE: FindingCode.TYPE_FLIPPED,
    Measure.SIZE: FindingCode.VALUES_SHIFTED,
    Measure.DISTINCT: FindingCode.VALUES_SAME,
}


def judge_running(figures: RunFigures, normal: Normal) -> list[RunFinding]:
    """The findings for which a run is paused while it is going on: a field that has collapsed, a type that has
    flipped, many block pages. May be called at any time; the result changes after every `STEP` items, once there are
    `WINDOW` items.
    """
    if normal.stage is Stage.LEARNING:
        return []
    found = [*_refusals(figures, normal)]
    for name, field in normal.fields.items():
        seen = figures.fields.get(name)
        if seen is None and not figures.is_full:
            seen = FieldFigures.after(figures.items // STEP)
        if seen is not None and seen.fewest is not None:
            found += _collapses(name, seen.fewest, field, len(normal.fields))
    return found


def _refusals(figures: RunFigures, normal: Normal) -> Iterator[RunFinding]:
    bound = max(_COLLAPSED, normal.most_refused + _COLLAPSED / 2)
    if normal.refused is not None and figures.most_refused is not None and figures.most_refused > bound:
        yield RunFinding(FindingCode.BLOCK_PAGES, figures.most_refused, normal.refused.level, bound, in_window=True)


def _collapses(name: str, fewest: Sequence[int], normal: FieldNormal, fields: int) -> Iterator[RunFinding]:
    share = normal.coverage.mean
    limit = _limit(normal.barest, share, fields)
    if fewest[0] < limit:
        yield RunFinding(FindingCode.FIELD_COLLAPSED, fewest[0] / WINDOW, share, limit / WINDOW, name, in_window=True)
    elif normal.main_type is not None:
        kind = normal.main_type
        share *= normal.types[kind].mean
        limit, fewest_of_type = _limit(normal.barest_type, share, fields), fewest[TYPES.index(kind) + 1]
        if fewest_of_type < limit:
            yield RunFinding(
                FindingCode.TYPE_FLIPPED, fewest_of_type / WINDOW, share, limit / WINDOW, name, kind, in_window=True
            )


def _limit(barest: int | None, share: float, fields: int) -> int:
    """A window with fewer values than this stops the run. `barest`: the fewest values in any earlier window."""
    return 0 if barest is None else min(_improbable(barest, fields), ceil(_COLLAPSED * share * WINDOW))


@cache
def _improbable(barest: int, fields: int) -> int:
    """The limit that a window almost never falls below: even if values are as rare as in the barest earlier window,
    the probability is at most `_STOPPED_BY_CHANCE / fields`.
    """
    share, chance = barest / WINDOW, 0.0
    for values in range(WINDOW + 1):
        chance += comb(WINDOW, values) * share**values * (1 - share) ** (WINDOW - values)
        if chance > _STOPPED_BY_CHANCE / fields:
            return values
    return WINDOW


# --- the sentences of findings


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _percent(value: float) -> str:
    return f"{value * 100:.3g} %"


def _number(value: float) -> str:
    return f"{value:,.4g}"


class _Words(NamedTuple):
    form: Callable[[float], str]
    sentence: str
    bounds: str
    #: What the window consists of.
    window: str = "items"


_AT_LEAST, _AT_MOST = " (normal: {normal}, minimum: {bound}).", " (normal: {normal}, maximum: {bound})."
_WORDS = {
    FindingCode.ITEMS_DROPPED: _Words(_count, "The run has {value} items", _AT_LEAST),
    FindingCode.ITEMS_RISEN: _Words(_count, "The run has {value} items", _AT_MOST),
    FindingCode.SLOWER: _Words(_count, "The run took {value} seconds", _AT_MOST),
    FindingCode.FAILURES_UP: _Words(_percent, "{value} of the requests have failed", _AT_MOST),
    FindingCode.BLOCK_PAGES: _Words(
        _percent, "{value} of the responses have a status of 400 or more", _AT_MOST, "responses"
    ),
    FindingCode.FIELD_LOWER: _Words(_percent, "{value} of the items have {field!r}", _AT_LEAST),
    FindingCode.FIELD_COLLAPSED: _Words(_percent, "{value} of the items have {field!r}", _AT_LEAST),
    FindingCode.TYPE_FLIPPED: _Words(_percent, "{value} of the values of {field!r} have the type {type}", _AT_LEAST),
    FindingCode.VALUES_SHIFTED: _Words(
        _number, "The median of {field!r} is {value}", " (normal: {normal}, limit: {bound})."
    ),
    FindingCode.VALUES_SAME: _Words(_count, "All values of {field!r} are the same", "; normally they differ."),
}
