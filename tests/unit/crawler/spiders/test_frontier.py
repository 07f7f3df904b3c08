from __future__ import annotations

from crawler.spiders.site_spider import Frontier


def test_each_page_is_asked_for_once() -> None:
    frontier = Frontier()
    assert frontier.ask("/a")
    assert not frontier.ask("/a")
    assert not frontier.admits("/a", 1)


def test_what_is_held_comes_with_the_next_level_and_only_once() -> None:
    frontier = Frontier(2)
    frontier.hold("/a", 1)
    assert not frontier.admits("/a", 1)
    assert list(frontier.next_level()) == [("/a", 1)]
    assert list(frontier.next_level()) == []


def test_what_a_redirect_fetched_early_is_not_fetched_with_its_level() -> None:
    frontier = Frontier(2)
    frontier.hold("/a", 2)
    assert frontier.ask("/a")
    assert list(frontier.next_level()) == []


def test_nothing_beyond_the_limit_is_admitted() -> None:
    assert Frontier(1).admits("/a", 1)
    assert not Frontier(1).admits("/a", 2)
    assert Frontier(None).admits("/a", 1000)
