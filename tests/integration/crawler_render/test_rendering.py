"""`"render": true`: what the spider sees of pages that scripts make, and of pages that misbehave."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest
from forms import in_full
from integration.crawler.conftest import Crawl, Run, Start
from sites.server import Reply, Site, html

DEADLINE = 30
RENDERED = {"render": True}
PATIENT = {**RENDERED, "wait_for": ".ready"}


def script(code: str, body: str = "", title: str = "") -> str:
    return html(f"{body}<script>{code}</script>", title)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def browsers(folder: Path) -> list[psutil.Process]:
    """The processes that the attempt has started, by what is in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("DISCOVERYBOT_ATTEMPT_DIR") == str(folder):
                found.append(process)
        except psutil.Error:
            continue
    return found


def page(crawl: Crawl, path: str) -> dict[str, object]:
    return next(item for item in crawl.pages if item["url"].endswith(path))


def errors(crawl: Crawl) -> dict[str, str]:
    return {"/" + error["url"].split("/", 3)[3]: error["reason"] for error in crawl.report["errors"]}


PAGES = {
    "/": script(
        "fetch('/data').then(r => r.text()).then(t => document.body.insertAdjacentHTML('beforeend', t))",
        title="Start",
    ),
    "/data": "<h1>from a script</h1>" + "".join(
        f'<a href="{path}">x</a>'
        for path in ("/base/", "/moves", "/forbidden", "/404", "/file.zip", "/latin-1", "/hop")
    ),
    "/base/": script("history.pushState({}, '', '/elsewhere/here')", '<a href="there">there</a>'),
    "/elsewhere/there": html("there", "There"),
    "/moves": script("location.replace('/moved')", title="Moves"),
    "/moved": html("<h1>moved</h1>", "Moved"),
    "/hop": Reply(status=302, headers={"Location": "/hopped"}),
    "/hopped": script("document.title = navigator.userAgent"),
    "/file.zip": Reply(b"PK" * 1000, content_type="application/zip"),
    "/forbidden": html("no", "Forbidden"),
    "/nosy": html("", "Nosy"),
}  # fmt: skip


@pytest.fixture(scope="module")
def walked(run: Run, temporary: Path) -> Iterator[tuple[Crawl, Site]]:
    with Site(PAGES, robots="User-agent: *\nDisallow: /forbidden\nDisallow: /data/") as site:
        yield run("seo", site.url, params=RENDERED, environ={"TMPDIR": str(temporary)}), site


@pytest.fixture(scope="module")
def temporary() -> Iterator[Path]:
    # a short path: Chromium puts a socket below it
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def test_the_spider_sees_what_scripts_have_made(walked: tuple[Crawl, Site]) -> None:
    crawl, _ = walked
    assert page(crawl, "/")["h1"] == ["from a script"]
    assert page(crawl, "/latin-1")["h1"] == ["Çà et là"]
    assert crawl.progress["errors_count"] == 0
    assert crawl.report["finish_reason"] == "finished"


def test_a_temporary_folder_may_have_a_long_name(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    with Site(PAGES) as site:
        crawl = run("seo", f"{site.url}/hopped", depth=0, params=RENDERED, environ={"TMPDIR": str(folder)})
    assert str(page(crawl, "/hopped")["title"]).startswith("DiscoveryBot/")
    assert list(folder.iterdir()) == []


def test_links_are_relative_to_where_scripts_have_moved_the_address_bar(walked: tuple[Crawl, Site]) -> None:
    crawl, _ = walked
    assert page(crawl, "/elsewhere/there")["title"] == "There"


def test_a_script_that_moves_on_is_a_redirect(walked: tuple[Crawl, Site]) -> None:
    crawl, site = walked
    assert page(crawl, "/moved")["redirects"] == [{"url": f"{site.url}/moves", "status": "script"}]
    assert site.hits("/moved") == 1
    assert page(crawl, "/hopped")["redirects"] == [{"url": f"{site.url}/hop", "status": 302}]


def test_scripts_see_our_user_agent(walked: tuple[Crawl, Site]) -> None:
    assert str(page(walked[0], "/hopped")["title"]).startswith("DiscoveryBot/")


def test_only_good_pages_are_rendered_and_robots_are_obeyed(walked: tuple[Crawl, Site]) -> None:
    crawl, site = walked
    assert site.hits("/forbidden") == 0
    assert site.hits("/file.zip") == 1
    assert [link["status"] for link in crawl.broken] == [404]
    # `/moves` as well, which was shown and then left
    assert crawl.report["stats"]["render/pages"] == len(crawl.pages) + 1


def test_nothing_is_left_behind(walked: tuple[Crawl, Site], temporary: Path) -> None:
    folder = walked[0].folder
    until(lambda: browsers(folder) == [])
    assert list(temporary.iterdir()) == []
    assert crawl_seconds_after_closing(walked[0]) < 2


def crawl_seconds_after_closing(crawl: Crawl) -> float:
    """From the spider's end to the last line of the log, which is of the browser's end."""
    return crawl.folder.joinpath("crawl.log").stat().st_mtime - crawl.folder.joinpath("report.json").stat().st_mtime


def test_wait_for_and_scroll_bring_all_of_an_endless_page(run: Run) -> None:
    feed = script(
        """
        const more = async () => {
            const answer = await fetch(`/items?${document.links.length}`);
            document.getElementById("feed").insertAdjacentHTML("beforeend", await answer.text());
        };
        new IntersectionObserver(([end]) => end.isIntersecting && more()).observe(document.getElementById("end"));
        setTimeout(() => document.body.insertAdjacentHTML("beforeend", "<p class=late>"), 800);
        """,
        "<div id=feed></div><div id=end style='margin-top: 1500px'>end</div>",
    )
    rows = [f'<p style="height: 300px"><a href="/i/{i}">item {i}</a></p>' for i in range(60)]
    pages = {f"/items?{i}": Reply("".join(rows[i : i + 10]), delay=0.1) for i in range(0, 70, 10)}
    with Site({"/feed": feed, "/late": feed, **pages}) as site:
        crawl = run("seo", f"{site.url}/feed", depth=0, params={**RENDERED, "wait_for": ".late::text", "scroll": 50})
        assert page(crawl, "/feed")["internal_links_count"] == len(rows)
        assert crawl.report["stats"]["render/scrolls"] < 20, "it stops when nothing more comes"
        few = run("seo", f"{site.url}/late", depth=0, params={**RENDERED, "wait_for": ".never", "scroll": 1},
                  environ={"CRAWL_MAX_PAGE_SECONDS": "6"})  # fmt: skip
    assert 0 < int(str(page(few, "/late")["internal_links_count"])) < len(rows)
    assert few.report["stats"]["render/timeout/wait_for"] == 1
    assert few.report["finish_reason"] == "finished"
    assert few.progress["errors_count"] == 0


@in_full("a killed browser below, and pages that are slow above")
def test_pages_that_misbehave_cost_themselves_alone(run: Run, chromium: str) -> None:
    pages = {
        "/never": html("<h1>never</h1><img src=/slow/60>"),
        "/stuck": script("addEventListener('load', () => { for (;;) {} })"),
        "/huge": script("const t = 'x'.repeat(1 << 20); for (let i = 0; i < 3; i++) document.body.append(t)"),
        "/greedy": script(
            "(async () => { for (let i = 0; i < 99; i++) await (await fetch('/large/999999')).blob() })()"
        ),
        "/asks": script(
            "alert('a'); confirm('b'); prompt('c'); onbeforeunload = () => 'stay'; print()", title="asks"
        ),
        "/pops": script("for (let i = 0; i < 20; i++) open('/good?' + i)", title="pops"),
        "/reloads": script("location.reload()", title="reloads"),
        "/chases": script("location = '/chases?0'"),
        "/good": html("good", "good"),
    }
    with Site(pages) as site:
        site.pages.update({f"/good?{i}": "popped" for i in range(20)})
        site.pages.update({f"/chases?{i}": script(f"location = '/chases?{i + 1}'") for i in range(20)})
        crawl = run("seo", *(site.url + path for path in pages), depth=0, params=RENDERED,
                    environ={"CRAWL_MAX_PAGE_SECONDS": "15", "CRAWL_MAX_PAGE_BYTES": "2000000",
                             "CHROMIUM_PATH": chromium})  # fmt: skip
    told = errors(crawl)
    assert "was not ready within 15 s" in told.pop("/stuck")
    assert "CRAWL_MAX_PAGE_BYTES" in told.pop("/huge")
    chased = [reason for path, reason in told.items() if path.startswith("/chases")]
    assert chased == list(told.values()) == ["max redirections reached"]
    assert {str(page["url"]).rpartition("/")[2] for page in crawl.pages} == {
        *("never", "greedy", "asks", "pops", "reloads", "good"),
    }
    assert crawl.report["stats"]["render/cut"] == 1
    assert 2 <= site.hits("/large/999999") < 9
    assert crawl.report["stats"]["render/timeout/load"] >= 1
    assert crawl.report["finish_reason"] == "finished"


def part(folder: Path, name: str) -> list[psutil.Process]:
    """The browser's processes of that name; those of its pages do not keep their environment."""
    ours = browsers(folder)
    if name == "driver":
        return [process for process in ours if "run-driver" in arguments(process)]
    mains = [process for process in ours if "--remote-debugging-pipe" in arguments(process)]
    if name == "browser":
        return mains
    return [child for child in mains[0].children(recursive=True) if "--type=renderer" in arguments(child)]


def arguments(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


class GatedSite(Site):
    """`/later` is answered once the gate is open."""

    gate: threading.Event

    def reply(self, path: str) -> Reply:
        if path.startswith("/later"):
            self.gate.wait(DEADLINE)
        return super().reply(path)


def test_a_killed_browser_costs_the_pages_it_showed(start: Start) -> None:
    later = {f"/later/{i}": html("<p class=ready>") for i in range(3)}
    pages = {"/waits": script("fetch('/shown')"), "/shown": "yes", **later}
    with ExitStack() as stack:
        sites = {victim: stack.enter_context(GatedSite(pages)) for victim in ("renderer", "browser", "driver")}
        for site in sites.values():
            site.gate = threading.Event()
        quick = {"CRAWL_MAX_PAGE_SECONDS": "20"}
        attempts = {
            victim: start("seo", *starts(site), depth=0, params=PATIENT, environ=quick)
            for victim, site in sites.items()
        }
        for victim, site in sites.items():
            until(lambda site=site: site.hits("/shown") == 1)
            for process in part(attempts[victim].folder, victim):
                # a renderer may end by itself, once another one shows its page
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            site.gate.set()
        crawls = {victim: attempt.wait() for victim, attempt in attempts.items()}
    for victim, crawl in crawls.items():
        failed = list(errors(crawl))
        # a process that was to show the next page may be among the killed ones
        assert failed == ["/waits"] or (victim == "renderer" and "/waits" in failed), victim
        assert crawl.progress["completed_pages"] == len(pages) - 1 - len(failed)
        assert crawl.report["finish_reason"] == "finished"
        assert crawl.exit_code == 0
        until(lambda crawl=crawl: browsers(crawl.folder) == [])


def starts(site: Site) -> list[str]:
    return [site.url + path for path in site.pages if path != "/shown"]


def test_without_a_chromium_it_says_so(run: Run) -> None:
    with Site({"/": html("x")}) as site:
        crawl = run("seo", site.url, params=RENDERED, environ={"CHROMIUM_PATH": "/nowhere/chromium"})
    assert "no Chromium was found" in errors(crawl)["/"]
    assert "set CHROMIUM_PATH" in crawl.log
    assert crawl.pages == []


def test_a_crawl_that_is_stopped_ends_with_its_browser(start: Start) -> None:
    with Site({"/": script("fetch('/shown')"), "/shown": "yes"}) as site:
        attempt = start("seo", site.url, params=PATIENT, environ={"CRAWL_STOP_GRACE": "4"})
        until(lambda: site.hits("/shown") == 1)
        asked = time.monotonic()
        attempt.process.terminate()
        crawl = attempt.wait()
    assert time.monotonic() - asked < 4
    assert crawl.report["finish_reason"] == "shutdown"
    assert errors(crawl) == {"/": "the crawl was stopped"} or errors(crawl) == {}
    until(lambda: browsers(crawl.folder) == [])
