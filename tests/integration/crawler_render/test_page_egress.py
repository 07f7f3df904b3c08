"""A page reaches for a machine that crawls may not reach, by every means that a browser gives it."""

from __future__ import annotations

import pytest
from integration.crawler.conftest import Run
from integration.crawler_render.canary import ADDRESS, Canary
from sites.server import Reply, Site, html

#: `{inside}` is the host and port that nothing may reach, `{site}` the site's own.
MEANS = {
    "image": "<img src=//{inside}/img><img src=/redirect-to?http://{inside}/redirected-img>",
    "frame": "<iframe src=http://{inside}/frame></iframe><iframe src=/redirect-to?http://{inside}/f></iframe>",
    "object": "<object data=http://{inside}/object></object><embed src=http://{inside}/embed>",
    "style": "<style>@import url(http://{inside}/a.css); body {{ background: url(http://{inside}/bg) }}</style>"
    "<link rel=stylesheet href=http://{inside}/b.css>",
    "font": "<style>@font-face {{ font-family: f; src: url(http://{inside}/font) }}"
    " p {{ font-family: f }}</style><p>x",
    "script": "<script src=http://{inside}/a.js></script><script type=module src=http://{inside}/b.js></script>",
    "media": "<video autoplay src=http://{inside}/v></video><audio autoplay src=http://{inside}/a></audio>",
    "hints": "<link rel=prefetch href=http://{inside}/p><link rel=preload as=image href=http://{inside}/q>"
    "<link rel=dns-prefetch href=//{inside}><link rel=preconnect href=http://{inside}>"
    '<script type=speculationrules>{{"prefetch": [{{"urls": ["http://{inside}/spec"]}}],'
    ' "prerender": [{{"urls": ["http://{inside}/pre"]}}]}}</script>',
    "fetch": "<script>for (const u of ['http://{inside}/fetch', 'https://{inside}/tls', '/redirect-to?http://{inside}/r'])"
    " fetch(u, {{mode: 'no-cors'}}).catch(() => 0)</script>",
    "xhr": "<script>const x = new XMLHttpRequest(); x.open('POST', 'http://{inside}/xhr'); x.send('x')</script>",
    "beacon": "<script>navigator.sendBeacon('http://{inside}/beacon', 'x')</script>"
    "<a id=p ping=http://{inside}/ping href=#>a</a><script>p.click()</script>",
    "websocket": "<script>new WebSocket('ws://{inside}/ws'); new WebSocket('wss://{inside}/wss')</script>",
    "eventsource": "<script>new EventSource('http://{inside}/events')</script>",
    "worker": "<script>new Worker('/worker.js'); new SharedWorker('/worker.js')</script>",
    "service worker": "<script>navigator.serviceWorker?.register('/worker.js').then(() => fetch('/sub'))</script>",
    "webrtc": "<script>const c = new RTCPeerConnection({{iceServers: [{{urls: ['stun:{inside}', 'turn:{inside}',"
    " 'turn:{inside}?transport=tcp', 'turns:{inside}'], username: 'u', credential: 'c'}}]}});"
    " c.createDataChannel('d');"
    " c.createOffer().then(o => c.setLocalDescription(o))</script>",
    "webtransport": "<script>new WebTransport('https://{inside}/wt').ready.catch(() => 0)</script>",
    "window": "<script>open('http://{inside}/window'); open('/redirect-to?http://{inside}/window')</script>",
    "form": "<form id=f method=post target=_blank action=http://{inside}/form></form><script>f.submit()</script>",
    "move": "<script>location = 'http://{inside}/moved'</script>",
    "refresh": "<meta http-equiv=refresh content='0; url=http://{inside}/refreshed'>",
    "download": "<a id=d download href=http://{inside}/download>d</a><script>d.click()</script>",
    "redirected move": "<script>location = '/redirect-to?http://{inside}/moved'</script>",
}
WORKER = """
for (const url of ["http://{inside}/worker", "https://{inside}/worker"]) fetch(url, {mode: "no-cors"}).catch(() => 0);
new WebSocket("ws://{inside}/worker");
try { importScripts("http://{inside}/import.js") } catch {}
"""


@pytest.fixture(scope="session")
def browser(chromium: str) -> str:
    """The whole Chromium."""
    return chromium


def test_nothing_reaches_what_crawls_may_not_reach(run: Run) -> None:
    with Canary() as canary, Site() as site:
        inside = f"{ADDRESS}:{canary.port}"
        paths = {name: f"/{name.replace(' ', '-')}" for name in MEANS}
        for name, body in MEANS.items():
            site.pages[paths[name]] = html(body.format(inside=inside) + f"<h1>{name}</h1>")
        site.pages["/worker.js"] = Reply(WORKER.replace("{inside}", inside), content_type="text/javascript")
        site.pages["/sub"] = "sub"
        starts = [site.url + path for path in paths.values()]
        crawl = run(
            "seo", *starts, depth=0, params={"render": True}, environ={"CRAWL_ALLOW_NETWORKS": "127.0.0.1/32"}
        )
        assert canary.heard == []
        assert site.hits("/worker.js")
    rendered = {page["h1"][0] for page in crawl.pages}
    # those that moved away led to what cannot be fetched
    assert rendered == set(MEANS) - {"move", "refresh", "redirected move", "download"}
    assert crawl.report["stats"]["render/refused"] > 10
    reasons = [error["reason"] for error in crawl.report["errors"]]
    assert reasons == [one for one in reasons if "is not a public address" in one]


def test_the_canary_would_have_heard_them(run: Run) -> None:
    with Canary() as canary, Site() as site:
        inside = f"{ADDRESS}:{canary.port}"
        site.pages["/"] = html(MEANS["image"].format(inside=inside) + MEANS["websocket"].format(inside=inside))
        run("seo", site.url, depth=0, params={"render": True})
        assert len(canary.heard) >= 3
