"""The browser of a crawl: started for the first page that needs it, behind the egress proxy, in a folder
of its own.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import psutil

from gateway.contract.outbox import BROWSER, PROTOCOLS, write_atomically
from gateway.crash_points import state_change

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.async_api import Browser, BrowserContext, BrowserType, Playwright

    from crawler.net.egress_proxy import EgressProxy


logger = logging.getLogger(__name__)

#: Maximum number of starts of the browser in one crawl. If it has ended that often, it would not survive the next
#: page either.
MAX_STARTS = 5
START_SECONDS = 60.0
_FOLDER = "dbot-"
#: The longest path below our folder, and the most bytes that the kernel allows for the path of a socket.
_SOCKET = "/playwright_chromiumdev_profile-XXXXXX/SingletonSocket"
_LONGEST_SOCKET = 107
#: Where the folder is made if the path of the usual place is too long.
_SHORT = "/tmp"  # noqa: S108 - mkdtemp makes a folder there that nobody else can read
#: All connections go through the proxy: no QUIC, no UDP of WebRTC, and the browser resolves no names itself.
_CLOSED = (
    "--disable-quic",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--dns-prefetch-disable",
    "--no-pings",
    "--disable-background-networking",
    "--disable-crash-reporter",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)
#: Arguments that a project cannot set: other ways to the network, another profile, a port for debuggers.
_REFUSED_ARGUMENTS = (
    "--proxy-",
    "--no-proxy-server",
    "--host-resolver-rules",
    "--host-rules",
    "--remote-debugging",
    "--user-data-dir",
    "--force-webrtc",
    "--webrtc",
    "--enable-quic",
    "--origin-to-force-quic-on",
)
_REFUSED_OPTIONS = frozenset(
    {"executable_path", "channel", "proxy", "headless", "chromium_sandbox", "devtools"}
    | {"ignore_default_args", "handle_sigint", "handle_sigterm", "handle_sighup", "downloads_path", "env"}
)


class Chromium:
    """A scrapy-playwright browser provider. `options` are what the project wants for its launch."""

    def __init__(self, executable: Path, proxy: EgressProxy, options: dict[str, Any]) -> None:
        self._executable = executable
        self._proxy = proxy
        self._options = options
        # Chromium's sandbox refuses to run as root
        self._sandbox = os.geteuid() != 0
        self._folder: Path | None = None
        self._playwright: AbstractAsyncContextManager[Playwright] | None = None
        self._type: BrowserType | None = None
        self._driver: psutil.Process | None = None
        self._starts = 0

    @property
    def is_alive(self) -> bool:
        """Whether the driver runs, which could start a browser."""
        driver = self._driver
        return driver is not None and driver.is_running() and driver.status() != psutil.STATUS_ZOMBIE

    async def start(self) -> None:
        """Start the driver, or start it again after it has ended."""
        # imported here, because Scrapyd imports this file to find the browser, and does not need Playwright
        from playwright.async_api import async_playwright  # noqa: PLC0415

        _remove_forgotten()
        self._remove_folder()
        self._folder = _make_folder()
        self._playwright = async_playwright()
        with _temporary_files_in(self._folder):
            self._type = (await self._playwright.__aenter__()).chromium
        self._driver = next((child for child in psutil.Process().children() if "run-driver" in child.cmdline()), None)

    async def launch_browser(self) -> Browser:
        if self._type is None:
            raise RuntimeError("the provider has not been started")
        from playwright.async_api import Error as PlaywrightError  # noqa: PLC0415 - as above

        self._count_start()
        try:
            return await self._type.launch(**self._launch_options())
        except PlaywrightError as error:
            if not self._sandbox or "sandbox" not in str(error).lower():
                raise
            logger.warning("Chromium runs without its sandbox, which this machine does not support")
            self._sandbox = False
            return await self._type.launch(**self._launch_options())

    async def launch_persistent_context(self, context_kwargs: dict[str, Any]) -> BrowserContext:
        if self._type is None:
            raise RuntimeError("the provider has not been started")
        self._count_start()
        return await self._type.launch_persistent_context(**{**context_kwargs, **self._launch_options()})

    async def close(self) -> None:
        if self._playwright:
            await self._playwright.__aexit__(None, None, None)
        self._remove_folder()

    def _remove_folder(self) -> None:
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _count_start(self) -> None:
        from crawler.render.page_view import RenderError  # noqa: PLC0415 - as above

        if self._starts >= MAX_STARTS:
            raise RenderError(f"the browser has ended {MAX_STARTS} times and is not started again")
        self._starts += 1

    def _launch_options(self) -> dict[str, Any]:
        wanted = {name: value for name, value in self._options.items() if name not in _REFUSED_OPTIONS}
        # Chromium accepts one hyphen as well as two
        written = [f"--{argument.lstrip('-')}" for argument in wanted.pop("args", ())]
        given = [argument for argument in written if not argument.startswith(_REFUSED_ARGUMENTS)]
        return {
            "timeout": START_SECONDS * 1000,
            **wanted,
            "executable_path": self._executable,
            "headless": True,
            "chromium_sandbox": self._sandbox,
            "proxy": {"server": self._proxy.url, "username": self._proxy.user, "password": self._proxy.password},
            # of two contradictory arguments Chromium takes the last
            "args": [*given, *_CLOSED, "--proxy-bypass-list=<-loopback>"],
            # the crawl itself closes the browser a moment later, so the browser ignores these signals
            "handle_sigint": False,
            "handle_sigterm": False,
            "handle_sighup": False,
        }


@contextmanager
def _temporary_files_in(folder: Path) -> Iterator[None]:
    """Set `TMPDIR` while the driver starts. The driver keeps that environment, and puts the browser's
    profiles there.
    """
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = str(folder)
    try:
        yield
    finally:
        os.environ.pop("TMPDIR")
        if before is not None:
            os.environ["TMPDIR"] = before


def _make_folder() -> Path:
    """Make the folder below `TMPDIR`, or in `/tmp` if Chromium would die there of "Socket path too long"."""
    parent, name = tempfile.gettempdir(), f"{_FOLDER}{os.getpid()}-"
    longest = os.fsencode(f"{parent}/{name}12345678{_SOCKET}")
    return Path(tempfile.mkdtemp(prefix=name, dir=parent if len(longest) <= _LONGEST_SOCKET else _SHORT))


def _remove_forgotten() -> None:
    """Remove the folders of crawls that were killed."""
    for parent in {tempfile.gettempdir(), _SHORT}:
        for folder in Path(parent).glob(f"{_FOLDER}*"):
            pid = folder.name.removeprefix(_FOLDER).partition("-")[0]
            if pid.isdigit() and not psutil.pid_exists(int(pid)):
                shutil.rmtree(folder, ignore_errors=True)


# --- which Chromium renders pages on this node

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
#: Below the home folder, on Linux and on macOS.
_PLAYWRIGHTS = (
    ".cache/ms-playwright/chromium*/chrome-*/chrome",
    "Library/Caches/ms-playwright/chromium*/chrome-*/*.app/Contents/MacOS/*",
)


def find_chromium(named: str | Path | None) -> Path | None:
    """The Chromium that is `named` (`CHROMIUM_PATH`), else the first on `PATH`, else Playwright's own.

    If one is named, no other is searched for.
    """
    if named:
        chosen = Path(named).absolute()
        return chosen if _is_program(chosen) else None
    on_path = next((path for name in _NAMES if (path := shutil.which(name))), None)
    return Path(on_path).absolute() if on_path else _playwrights_own()


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _playwrights_own() -> Path | None:
    """The newest Chromium that `playwright install chromium` has put into the home folder."""
    found = [path for pattern in _PLAYWRIGHTS for path in Path.home().glob(pattern) if _is_program(path)]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


@state_change("node.browser")
def write_browser_file(node_dir: Path, chromium: Path | None) -> None:
    """Write down, for the tailer, whether this node can render pages, and what this version of Scrapyd supports."""
    node_dir.mkdir(parents=True, exist_ok=True)
    found = {"chromium": str(chromium) if chromium else None, "protocols": sorted(PROTOCOLS)}
    write_atomically(node_dir / BROWSER, orjson.dumps(found))
