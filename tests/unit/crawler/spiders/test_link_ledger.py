from __future__ import annotations

from crawler.spiders.seo import Breakage, LinkLedger, Mention

GONE = Breakage(status=404)


def test_mentions_before_and_after_the_answer_are_all_told() -> None:
    ledger = LinkLedger()
    early, late = Mention("/gone", "/a"), Mention("/gone", "/b")
    ledger.expect("/gone")
    assert ledger.mention("/gone", early) is None
    assert ledger.breaks("/gone", GONE) == [early]
    assert ledger.mention("/gone", late) == GONE


def test_a_page_that_works_is_forgotten() -> None:
    ledger = LinkLedger()
    ledger.expect("/a")
    ledger.mention("/a", Mention("/a", "/"))
    ledger.works("/a")
    assert ledger.breaks("/a", GONE) == []


def test_links_that_lead_to_the_same_page_break_together() -> None:
    ledger = LinkLedger()
    for url in ("/old", "/new"):
        ledger.expect(url)
    by_redirect = Mention("/old", "/a")
    ledger.mention("/old", by_redirect)
    ledger.same("/old", "/new")
    assert ledger.breaks("/new", GONE) == [by_redirect]


def test_a_link_that_an_attempt_before_has_reported_is_not_reported_again() -> None:
    noted: list[tuple[str, tuple[object, ...]]] = []
    before, after = LinkLedger(), LinkLedger()
    before.keep("ledger", lambda _part, method, args: noted.append((method, args)))
    reported, other = Mention("/gone", "/a"), Mention("/gone", "/b")
    before.expect("/gone")
    before.mention("/gone", reported)
    assert before.breaks("/gone", GONE) == [reported]
    # killed before /a was done: its changes are not kept, those of /gone are
    after.replay(*noted[-1])
    after.expect("/gone")
    assert after.mention("/gone", reported) is None
    assert after.mention("/gone", other) == GONE
