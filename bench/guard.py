"""How many bad runs, and how many good ones, a dataset's guard holds or pauses: `python -m bench guard`.

Twenty made-up sites are crawled fifty times each. Their content grows, varies with weekends and seasons, is sorted by
date or price, and has sales. One site has a redesign, which a person accepts. After the tenth run, the guard also
judges broken copies of some runs, from which it learns nothing.

`python -m bench.guard SEED …` prints what was missed and what was held by mistake, with other seeds.
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from bench.effort import Effort
from bench.table import Row
from gateway.datasets.figures import RunFigures
from gateway.datasets.judging import HOLDS_AFTER, FindingCode, Normal, judge, judge_running, learn

SEED = 20_250_701
SITES, RUNS, BREAKAGES = 20, 50, 60
#: The run in which one site is redesigned.
REDESIGN = 24
#: Target values: breakages found, and good runs held at most.
WANTED, HELD_AT_MOST = 57, 2
#: A breakage that shows during the run must be found within this many items, or this share of the run.
SOON_ITEMS, SOON_SHARE = 50, 0.15
#: A field that a smaller share of items has counts as rare: a few pages without it do not show that it is gone.
_RARE = 0.5
#: Items per page.
PAGE = 10

Item = dict[str, Any]


# --- sites


class Field(NamedTuple):
    name: str
    make: Callable[[random.Random, float], Any]
    #: Share of items that have the field, and how much that varies from run to run (standard deviation).
    coverage: float = 1.0
    differs: float = 0.0
    #: Share of the listing, at its beginning, in which few items have the field, as new items have no ratings.
    late: float = 0.0


def _words(least: int, most: int) -> Callable[[random.Random, float], str]:
    draw = random.Random(least)
    texts = [" ".join(f"word{draw.randrange(900)}" for _ in range(draw.randint(least, most))) for _ in range(1000)]
    return lambda chance, _: chance.choice(texts)


def _price(chance: random.Random, scale: float) -> float:
    return round(scale * math.exp(chance.gauss(0, 0.8)), 2)


#: What a site's items may have, besides `url`, `title` and a price.
EXTRAS = (
    Field("description", _words(8, 30), 0.97, 0.01),
    Field("rating", lambda chance, _: round(chance.uniform(1, 5), 1), 0.75, 0.05),
    Field("reviews", lambda chance, _: int(math.exp(chance.gauss(3, 1.5))), 0.85, 0.03),
    Field("images", lambda chance, _: [f"https://img.example/{chance.random()}"] * chance.randint(1, 4), 0.98, 0.01),
    Field("in_stock", lambda chance, _: chance.random() < 0.8),
    Field("seller", lambda chance, _: {"name": f"s {chance.randrange(40)}", "id": chance.randrange(40)}, 0.9, 0.02),
    Field("discount", lambda chance, _: chance.choice((5, 10, 15, 20, 30)), 0.3, 0.08),
    Field("currency", lambda *_: "EUR"),
    Field("posted", lambda chance, _: f"2025-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}"),
    Field("weight", lambda chance, _: chance.choice((chance.randint(1, 90), f"{chance.randint(1, 9)} g")), 0.5, 0.04),
    Field("brand", lambda chance, _: f"brand {chance.randrange(60)}", 0.92, 0.02),
    Field("old_price", _price, 0.15, 0.05),
)  # fmt: skip


class Site:
    """A site with a different content for each run."""

    def __init__(self, seed: str) -> None:
        chance = random.Random(seed)
        self.seed = seed
        self.items = math.exp(chance.uniform(math.log(80), math.log(1200)))
        self.noise = chance.uniform(0.01, 0.1)
        self.growth = chance.choice((0.0, 0.002, 0.006))
        #: Share by which the items decrease at weekends, and in the low season of a year of 52 runs.
        self.weekend = chance.choice((0.0, 0.0, 0.1, 0.25))
        self.year = chance.choice((0.0, 0.1, 0.2))
        self.sales = chance.random() < 0.3
        self.cheapest_first = chance.random() < 0.3
        self.failures = chance.choice((0.0, 0.01, 0.04))
        self.price = math.exp(chance.uniform(1, 7))
        price = Field("price", _price if chance.random() < 0.6 else lambda *asked: f"€{_price(*asked):,.2f}")
        extras = chance.sample(EXTRAS, chance.randint(3, 8))
        late = chance.choice((0.0, 0.1, 0.2))
        #: The fields before the redesign, if there is one.
        self.fields = [
            Field("url", lambda draw, _: f"https://shop.example/{draw.getrandbits(40):x}"),
            Field("title", _words(2, 8)),
            price,
            *(field._replace(late=late if field.name in {"rating", "reviews"} else 0.0) for field in extras),
        ]

    def redesign(self) -> None:
        """Turn prices into objects, replace a field by another, and show more items per page."""
        self.fields = [*self.fields[:2], *self.fields[4:]]
        self.fields.append(Field("offer", lambda chance, scale: {"price": _price(chance, scale), "currency": "EUR"}))
        self.items *= 1.2

    def crawl(self, number: int) -> Run:
        """The run of this number, which is always the same."""
        chance = random.Random(f"{self.seed} {number}")
        season = (1 - self.weekend * (number % 7 >= 5)) * (1 + self.year * math.sin(number / 52 * math.tau))
        count = round(self.items * (1 + self.growth) ** number * season * math.exp(chance.gauss(0, self.noise)))
        is_sale = self.sales and number % 20 >= 16
        scale = self.price * (0.8 if is_sale else 1)
        coverages = [self._coverage(field, chance, is_sale=is_sale) for field in self.fields]
        items = [self._item(chance, scale, at / count, coverages) for at in range(count)]
        if self.cheapest_first:
            items.sort(key=lambda item: str(item.get("price", "")).rjust(12))
        return Run(items, self.failures * chance.uniform(0.3, 2), chance.uniform(0.8, 1.3))

    @staticmethod
    def _coverage(field: Field, chance: random.Random, *, is_sale: bool) -> float:
        if field.name == "discount" and is_sale:
            return 0.8
        return min(1.0, max(0.0, chance.gauss(field.coverage, field.differs)))

    def _item(self, chance: random.Random, scale: float, at: float, coverages: Sequence[float]) -> Item:
        return {
            field.name: field.make(chance, scale)
            for field, coverage in zip(self.fields, coverages, strict=True)
            if chance.random() < (coverage * 0.1 if at < field.late else coverage)
        }


class Run(NamedTuple):
    items: list[Item]
    #: Share of requests that fail, and seconds per page.
    failures: float
    pace: float
    #: Number of pages at the end that were refused.
    refused: int = 0


# --- what breaks


class Breakage(NamedTuple):
    name: str
    #: Makes the broken run. The number is that of the first broken item.
    apply: Callable[[Run, int, random.Random], Run]
    #: Whether the breakage shows while the run goes on.
    shows: bool = False
    #: Whether it begins somewhere in the run instead of at its first item.
    is_later: bool = False


def _each(change: Callable[[Item], Item]) -> Callable[[Run, int, random.Random], Run]:
    return lambda run, first, _: run._replace(items=[*run.items[:first], *map(change, run.items[first:])])


def _set(name: str, new: Callable[[Any], Any]) -> Callable[[Run, int, random.Random], Run]:
    return _each(lambda item: {**item, name: new(item[name])} if name in item else item)


def _times(factor: float) -> Callable[[Any], Any]:
    def new(price: Any) -> Any:
        if isinstance(price, str):
            return f"€{float(price[1:].replace(',', '')) * factor:,.2f}"
        return price * factor

    return new


def _one_gone(run: Run, first: int, chance: random.Random) -> Run:
    """Remove a field that most items have, from the first page of the listing on."""
    beginning = run.items[: len(run.items) // 10]
    names = [name for name in run.items[-1] if sum(name in item for item in beginning) > len(beginning) * 0.6]
    gone = chance.choice([name for name in names if name != "url"])
    return _each(lambda item: {name: value for name, value in item.items() if name != gone})(run, first, chance)


def _fades(run: Run, first: int, chance: random.Random) -> Run:
    """Leave the price only in every fourth item."""
    rest = [item if chance.random() < 0.25 else item | {"price": " "} for item in run.items[first:]]
    return run._replace(items=[*run.items[:first], *rest])


def _flips(value: Any) -> Any:
    return float(value[1:].replace(",", "")) if isinstance(value, str) else f"{value} EUR"


def _blocked(run: Run, first: int, _: random.Random) -> Run:
    return run._replace(items=run.items[:first], refused=(len(run.items) - first) // PAGE)


def _half(run: Run, _: int, chance: random.Random) -> Run:
    """Remove every second page, or the second half of the listing."""
    half = len(run.items) // 2
    by_pages = [item for at, item in enumerate(run.items) if at // PAGE % 2]
    return run._replace(items=by_pages if chance.random() < 0.5 else run.items[:half])


_BLOCK_PAGE = _each(lambda item: {"url": item["url"], "title": "Just a moment…"})
BREAKS = (
    Breakage("a field is gone", _one_gone, shows=True),
    Breakage("a field goes half-way", _one_gone, shows=True, is_later=True),
    Breakage("a field fades", _fades, shows=True),
    Breakage("a type flips", _set("price", _flips), shows=True),
    Breakage("a type flips half-way", _set("title", lambda title: [title]), shows=True, is_later=True),
    Breakage("blocked by status", _blocked, shows=True, is_later=True),
    Breakage("block pages instead of items", _BLOCK_PAGE, shows=True, is_later=True),
    Breakage("half of the site", _half),
    Breakage("prices x 100", _set("price", _times(100))),
    Breakage("prices x 0", _set("price", _times(0))),
    Breakage("titles are all the same", _set("title", lambda _: "Shop")),
    Breakage("a tenth of the site", lambda run, *_: run._replace(items=run.items[: len(run.items) // 10])),
)


# --- the guard's verdict


class Watched(NamedTuple):
    figures: RunFigures
    #: The findings because of which it was stopped, and its items and pages by then.
    stopped: Sequence[FindingCode] = ()
    items: int = 0
    pages: int = 0


def watch(run: Run, normal: Normal) -> Watched:
    """The run as a node follows it, page by page. It is read to its end even if it would be stopped."""
    figures = RunFigures()
    stopped: Watched | None = None
    pages = math.ceil(len(run.items) / PAGE)
    for page in range(1, pages + run.refused + 1):
        for item in run.items[(page - 1) * PAGE : page * PAGE]:
            figures.observe(item)
        _count_pages(figures, run, page, max(0, page - pages))
        findings = judge_running(figures, normal)
        if stopped is None and normal.holds(findings):
            stopped = Watched(figures, [one.code for one in findings], figures.items, page)
    figures.seconds = (pages + run.refused) * run.pace
    return stopped or Watched(figures)


def _count_pages(figures: RunFigures, run: Run, page: int, refused: int) -> None:
    """Count the requests for a page of items: the listing, and each item's own page."""
    responses = page * (PAGE + 1)
    failed = round(responses * run.failures)
    lost = refused * (PAGE + 1) + failed
    figures.answered(pages=responses - failed, failed=failed, responses=responses, refused=lost)


class Judged(NamedTuple):
    #: Number of good runs, and those of them that were held: `site run: codes`.
    good: int
    held: list[str]
    broken: int
    missed: list[str]
    #: Breakages that show during the run: their number, and those that were not found in time.
    showing: int
    late: list[str]
    #: Number of items (or pages) until each of those that show was found.
    delays: list[int]


def judge_all(seed: int, sites: int = SITES, runs: int = RUNS, breakages: int = BREAKAGES) -> Judged:
    chance = random.Random(seed)
    result = Judged(0, [], 0, [], 0, [], [])
    for place in range(sites):
        site = Site(f"{seed} {place}")
        # each breakage in turn, in another run
        mine = {at: BREAKS[at % len(BREAKS)] for at in range(place, breakages, sites)}
        redesigned = place == sites // 2
        possible = range(HOLDS_AFTER + 1, REDESIGN if redesigned else runs)
        when = dict(zip(chance.sample(possible, len(mine)), mine.values(), strict=True))
        result = _judge_site(site, place, runs, when, redesigned=redesigned, result=result)
    return result


def _judge_site(
    site: Site, place: int, runs: int, when: Mapping[int, Breakage], *, redesigned: bool, result: Judged
) -> Judged:
    accepted: list[RunFigures] = []
    for number in range(runs):
        if redesigned and number == REDESIGN:
            site.redesign()
        run, normal = site.crawl(number), learn(accepted)
        if number in when:
            result = _judge_broken(f"site {place} run {number}", run, normal, when[number], result)
        watched = watch(run, normal)
        findings = judge(watched.figures, normal)
        if watched.stopped or normal.holds(findings):
            said = [*watched.stopped, *(f"{one.code} {one.field or ''}".strip() for one in findings)]
            result.held.append(f"site {place} run {number}: {', '.join(said)}")
            # a person accepts the run, either as the redesign or as it is
            accepted = [] if redesigned and number == REDESIGN else accepted
        accepted.append(watched.figures)
        result = result._replace(good=result.good + 1)
    return result


def _judge_broken(where: str, run: Run, normal: Normal, breakage: Breakage, result: Judged) -> Judged:
    chance = random.Random(where)
    size = len(run.items)
    first = int(size * chance.uniform(0.3, 0.6)) if breakage.is_later else 0
    broken = breakage.apply(run, first, chance)
    watched = watch(broken, normal)
    if not watched.stopped and not normal.holds(judge(watched.figures, normal)):
        result.missed.append(f"{where}: {breakage.name}, {size} items")
    # if too few items are left, the breakage cannot show
    shows = breakage.shows and (size - first) * SOON_SHARE >= PAGE and size - first > SOON_ITEMS
    shows = shows and not _is_rare(run, broken, normal)
    if shows:
        delay = watched.items - first if watched.items > first else (watched.pages - first // PAGE) * PAGE
        result.delays.append(delay)
        if not watched.stopped or delay > max(SOON_ITEMS, SOON_SHARE * size):
            result.late.append(f"{where}: {breakage.name}, {delay} of {size} items")
    return result._replace(broken=result.broken + 1, showing=result.showing + shows)


def _is_rare(run: Run, broken: Run, normal: Normal) -> bool:
    """Whether the missing field was one that most items lacked before: a few pages without it prove nothing."""
    gone = _names(run) - _names(broken)
    return any(normal.fields[name].coverage.mean < _RARE for name in gone & normal.fields.keys())


def _names(run: Run) -> set[str]:
    return {name for item in run.items for name in item}


# --- CPU time


def seconds_of(lines: Sequence[bytes]) -> Iterator[float]:
    """CPU seconds of reading the lines, and of observing their items and judging each page."""
    normal = learn([watch(Site("cost").crawl(number), Normal()).figures for number in range(12)])
    began = time.process_time()
    items = [orjson.loads(line) for line in lines]
    yield time.process_time() - began
    figures = RunFigures()
    began = time.process_time()
    for number, item in enumerate(items):
        figures.observe(item)
        if not number % PAGE:
            judge_running(figures, normal)
    yield time.process_time() - began


def run(effort: Effort) -> list[Row]:
    sites, runs, breakages = effort.of((4, 30, 12), (SITES, RUNS, BREAKAGES))
    found = judge_all(SEED, sites, runs, breakages)
    caught, soon = found.broken - len(found.missed), found.showing - len(found.late)
    wanted, most = WANTED * found.broken / BREAKAGES, HELD_AT_MOST
    lines = [orjson.dumps(item) for number in range(effort.of(2, 20)) for item in Site("cost").crawl(number).items]
    reading, observing = (seconds / len(lines) * 1e6 for seconds in seconds_of(lines))
    asked = "what was asked for"
    return [
        Row(f"guard: held or paused, of {found.broken} bad runs", "runs", caught, wanted, asked, caught / wanted,
            ">= 1"),
        Row(f"guard: paused in time, of {found.showing} that show it half-way", "runs", soon, found.showing, "all",
            soon / found.showing, ">= 1"),
        Row(f"guard: held, of {found.good:,} good runs", "runs", len(found.held), most, asked, len(found.held) / most,
            "<= 1"),
        Row("guard: CPU of an item that is observed", "µs", observing, reading, "reading its JSON (orjson)",
            observing / reading),
    ]  # fmt: skip


def report(seed: int) -> None:
    found = judge_all(seed)
    delays = sorted(found.delays)
    print(
        f"seed {seed}: {found.broken - len(found.missed)} of {found.broken} bad runs found,",
        f"{found.showing - len(found.late)} of {found.showing} in time (median {delays[len(delays) // 2]} items),",
        f"{len(found.held)} of {found.good} good runs held",
    )
    for name in ("missed", "late", "held"):
        print(
            *(f"  {name}: {one}" for one in getattr(found, name)), sep="\n", end="\n" if getattr(found, name) else ""
        )


if __name__ == "__main__":
    for argument in sys.argv[1:] or [str(SEED)]:
        report(int(argument))
