"""`discoverybot join`: make this machine a crawl node of a platform elsewhere."""

from __future__ import annotations

import json
import os
import socket
from importlib.metadata import version
from urllib.parse import urlsplit

from embedded.stack.state import write_private
from gateway.cli.api import Api, ApiError
from gateway.cli.console import Record, err, home, out, program
from gateway.cli.options import argument, option, taking
from gateway.settings import NodeSettings

#: The settings of a machine that has joined. `up` runs a node with them.
FILE = "node.json"
#: What runs on a node.
PROCESSES = ("scrapyd", "tailer")


@taking(
    argument("url", "URL", "The gateway, as this machine reaches it."),
    argument("name", "NAME", "The node's name; no other node may have it."),
    option("address", "Where workers reach this machine. Default: its address on the way to the gateway."),
)
def join(*, url: str, name: str, address: str | None) -> None:
    """Make this machine a crawl node, with the invitation in DISCOVERYBOT_KEY. Then `up` runs it."""
    folder = home()
    if (folder / FILE).exists():
        raise ApiError(f"{folder / FILE}: this machine has joined already. Remove the file to join anew")
    address = address or _own_address(url)
    answer = Api(url.rstrip("/")).post("/nodes/join", json={"name": name})
    if answer["version"] != version("discoverybot"):
        err.print(f"The gateway is version {answer['version']}, this is {version('discoverybot')}", style="yellow")
    host = f"[{address}]" if ":" in address else address
    own = {
        "NODE_NAME": name,
        "NODE_URL": f"http://{host}:{NodeSettings.load().scrapyd_port}",
        "SCRAPYD_BIND_ADDRESS": address,
    }
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_private(folder / FILE, json.dumps(answer["variables"] | own, indent=1) + "\n")
    out.print(f"This machine is the node {name} now. It runs with: {program()} up", soft_wrap=True)


def use_what_was_joined() -> tuple[str, ...]:
    """Put the node's settings, if this machine has joined, into the environment, where they are not set otherwise.

    Returns the names of the processes that a node runs; none if this machine is no node. Raises `ApiError`.
    """
    path = home() / FILE
    try:
        variables: Record = json.loads(path.read_bytes())
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        raise ApiError(f"{path}: cannot be read ({error}); remove it, and join anew") from None
    for name, value in variables.items():
        os.environ.setdefault(name, str(value))
    return PROCESSES


def _own_address(url: str) -> str:
    """This machine's address on the way to the gateway. Raises `ApiError`."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        with socket.create_connection((parts.hostname or "", port), timeout=10) as connection:
            return str(connection.getsockname()[0])
    except (OSError, ValueError) as error:
        raise ApiError(f"{url}: cannot be reached ({error})") from None
