"""`discoverybot nodes drain`: give a node no more work, and wait until its machine can be removed."""

from __future__ import annotations

import time
from urllib.parse import quote

from gateway.cli.api import Api, ApiError, ExitCode
from gateway.cli.options import JSON, URL, flag, option, taking
from gateway.cli.resources import NODES
from gateway.cli.terminal import Record, err, gateway_url, out, print_json, visible

#: Seconds that one call waits, and seconds after which a gateway that did not answer is asked again.
_TURN, _AGAIN = 20.0, 1.0


@taking(
    NODES.parameter("name"),
    flag("wait", "Wait until its last crawl has ended and everything is shipped. Then its machine can be removed."),
    option("timeout", "Seconds to wait; after that the exit code is 1. Default: no limit.", kind=float, min=0),
    JSON,
    URL,
)
def drain(*, name: str, wait: bool, timeout: float | None, as_json: bool, url: str | None) -> None:
    """Give a node no new work; crawls that run there go on."""
    if timeout is not None and not wait:
        raise ApiError("--timeout: only with --wait")
    api, path = Api(gateway_url(url)), f"/nodes/{quote(name, safe='')}/drain"
    node: Record = _emptied(api, path, timeout) if wait else api.post(path)
    if as_json:
        print_json(node)
        return
    said = "its machine can be removed" if node["removable"] else f"waits for {_left(node)}"
    out.print(f"{name}: draining; {said}", soft_wrap=True)


def _emptied(api: Api, path: str, timeout: float | None) -> Record:
    """The node, once nothing is left there. If the gateway does not answer, it is asked again. Raises `ApiError`."""
    end = float("inf") if timeout is None else time.monotonic() + timeout
    told = ""
    while True:
        turn = max(0.0, min(_TURN, end - time.monotonic()))
        try:
            node: Record = api.post(path, params={"wait": turn})
        except ApiError as error:
            if error.exit_code is not ExitCode.ERROR or time.monotonic() + _AGAIN > end:
                raise
            left, pause = f"an answer: {str(error).splitlines()[0]}", _AGAIN
        else:
            if node["removable"]:
                return node
            left, pause = _left(node), 0.0  # the request itself has waited
        if left != told:
            err.print(f"waits for {left}", soft_wrap=True, markup=False)
            told = left
        if time.monotonic() >= end:
            raise ApiError(f"--timeout: after {timeout:g} s it still waits for {left}", ExitCode.ERROR)
        time.sleep(pause)


def _left(node: Record) -> str:
    return visible(" and ".join(node["waits_for"]))
