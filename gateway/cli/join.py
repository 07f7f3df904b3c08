"""`discoverybot join`: make this machine a crawl node of a platform elsewhere."""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from embedded.stack.state import write_private
from gateway.cli.api import Api, ApiError
from gateway.cli.options import argument, option, taking
from gateway.cli.terminal import Record, err, home, out, program
from gateway.contract.public_address import is_loopback
from gateway.settings import NodeSettings

#: The file with the settings of a machine that has joined. `up` runs a node with them.
FILE = "node.json"
#: The processes of a node.
PROCESSES = ("scrapyd", "tailer")
#: The settings that `deploy/node/compose.yml` takes from files of `secrets`; the others are in its `.env`.
SECRETS = (
    "MONGO_URI",
    "REDIS_URL",
    "BROKER_URL",
    "SCRAPYD_PASSWORD",
    "HTTP_CACHE_REDIS_PASSWORD",
    "FILES_ACCESS_KEY",
    "FILES_SECRET_KEY",
)

#: Settings that are accepted from a gateway. Others could change what runs here, as `PYTHONPATH` does.
SHARED = frozenset(
    {
        *("MONGO_URI", "REDIS_URL", "BROKER_URL", "QUEUE_NAME", "SCRAPYD_USERNAME", "SCRAPYD_PASSWORD"),
        *("FILES_URL", "FILES_ENDPOINT", "FILES_REGION", "FILES_ACCESS_KEY", "FILES_SECRET_KEY"),
    }
)
_OWN = frozenset({"NODE_NAME", "NODE_URL", "NODE_UIDS", "SCRAPYD_BIND_ADDRESS", "SCRAPYD_PORT"})
#: Settings that the node must have already: the stores, with users for it. A gateway never gives its own passwords.
_BROUGHT = ("MONGO_URI", "REDIS_URL", "BROKER_URL", "FILES_ACCESS_KEY", "FILES_SECRET_KEY")


@taking(
    argument("url", "URL", "The gateway, as this machine reaches it."),
    argument("name", "NAME", "The node's name; no other node may have it."),
    option("address", "Where workers reach this machine. Default: its address on the way to the gateway."),
    option("files", "The folder of `deploy/node/compose.yml`: write the files that it reads there.", kind=Path),
)
def join(*, url: str, name: str, address: str | None, files: Path | None) -> None:
    """Make this machine a crawl node, with the invitation in DISCOVERYBOT_KEY. Then `up`, or Docker, runs it.

    MONGO_URI, REDIS_URL and BROKER_URL name the stores, each with a user of this node alone.
    """
    kept = files / ".env" if files else home() / FILE
    if kept.exists():
        raise ApiError(f"{kept}: this machine has joined already. Remove the file to join anew")
    address = address or _own_address(url)
    _require_writable(kept.parent)
    _warn_of_plain_http(url)
    brought = {setting: os.environ[setting] for setting in _BROUGHT if os.environ.get(setting)}
    has = {"has": sorted(brought)} if brought else {}  # a gateway of 0.2 does not know the field
    answer = Api(url.rstrip("/")).post("/nodes/join", json={"name": name, **has})
    if answer["version"] != version("discoverybot"):
        err.print(f"The gateway is version {answer['version']}, this is {version('discoverybot')}", style="yellow")
    variables = _shared({**answer["variables"], **brought}) | _own_variables(name, address)
    if files:
        _write_files(files, variables)
    else:
        _warn_of_one_user(variables)
        write_private(kept, json.dumps(variables, indent=1) + "\n")
    runs = "docker compose up --build --detach --wait" if files else f"{program()} up"
    out.print(f"This machine is the node {name} now. It runs with: {runs}", soft_wrap=True)


def _require_writable(folder: Path) -> None:
    """Raises `ApiError` if nothing can be written there. An invitation can be used only once, so this is checked
    before it is sent.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(folder / ".joining", "")
        (folder / ".joining").unlink()
    except OSError as error:
        raise ApiError(f"{folder}: cannot be written to: {error.strerror}") from None


def _warn_of_plain_http(url: str) -> None:
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        err.print(
            f"{url}: without https://, others on the network can read Scrapyd's password, or answer instead",
            style="yellow",
        )


def _shared(variables: Mapping[str, Any]) -> dict[str, str]:
    """The settings that a node keeps: its own, and those that the gateway gave. Raises `ApiError`."""
    kept = {name: str(value) for name, value in variables.items() if name in SHARED}
    # a second line in `.env` would set another variable
    if wrong := [name for name, value in kept.items() if not value.isprintable()]:
        raise ApiError(f"{wrong[0]}: is not one line of text")
    return kept


def _own_variables(name: str, address: str) -> dict[str, str]:
    settings = NodeSettings.load()
    port, uids = settings.scrapyd_port, settings.node_uids
    return {
        "NODE_NAME": name,
        "NODE_URL": f"http://{_in_url(address)}:{port}",
        "SCRAPYD_BIND_ADDRESS": address,
        "SCRAPYD_PORT": str(port),
        **({"NODE_UIDS": uids} if uids else {}),
    }


def _warn_of_one_user(variables: Mapping[str, str]) -> None:
    if "NODE_UIDS" not in variables:
        err.print(
            "NODE_UIDS is not set: spiders will run as the node's own user, and can read its stores' passwords",
            style="yellow",
        )


def _in_url(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _write_files(folder: Path, variables: Mapping[str, str]) -> None:
    """Write the secrets, and at last `.env`. The password of this machine's own cache is generated here."""
    told = {"HTTP_CACHE_REDIS_PASSWORD": secrets.token_hex(24), **variables}
    told["SCRAPYD_BIND_ADDRESS"] = _in_url(told["SCRAPYD_BIND_ADDRESS"])  # the form in which Compose publishes a port
    closed = folder / "secrets"
    closed.mkdir(mode=0o700, exist_ok=True)
    for name in SECRETS:
        file = closed / name.lower()
        write_private(file, told.pop(name, "") + "\n")
        # the folder is closed, and each image reads its files as a user of its own
        file.chmod(0o444)
    write_private(folder / ".env", "".join(f"{name}={_quoted(value)}\n" for name, value in told.items()))


def _quoted(value: str) -> str:
    """The value in those quotes in which Compose does not replace variables."""
    return "'" + value.replace("'", "\\'") + "'"


def use_what_was_joined() -> tuple[str, ...]:
    """If this machine has joined, put the node's settings into the environment, unless they are set already.

    Returns the names of the node's processes; none if this machine is not a node. Raises `ApiError`.
    """
    path = home() / FILE
    try:
        variables: Record = json.loads(path.read_bytes())
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        raise ApiError(f"{path}: cannot be read ({error}); remove it, and join anew") from None
    for name in variables.keys() & (SHARED | _OWN):
        os.environ.setdefault(name, str(variables[name]))
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
