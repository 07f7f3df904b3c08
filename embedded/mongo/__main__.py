"""`python -m embedded.mongo --path FILE`: one database file, served on loopback."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from pathlib import Path

from embedded.mongo.login import USER
from embedded.mongo.server import serve
from embedded.mongo.store import StoreError


def main() -> int:
    """Serve the file. Returns 0 after SIGTERM or SIGINT, 1 if the file or port cannot be used; exits with 2 for a
    wrong argument.
    """
    parser = argparse.ArgumentParser(prog="python -m embedded.mongo", description=__doc__)
    parser.add_argument("--path", type=Path, required=True, help="the database file, created if it does not exist")
    parser.add_argument("--host", default="127.0.0.1", help="a loopback address")
    parser.add_argument("--port", type=int, default=27017, help="0 lets the system choose")
    parser.add_argument(
        "--password-file", type=Path, help=f"serves only clients that log in as {USER} with the password in this file"
    )
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    try:
        password = _password(arguments.password_file) if arguments.password_file else None
        asyncio.run(serve(arguments.path, arguments.host, arguments.port, password))
    except ValueError as error:
        parser.error(str(error))
    except (StoreError, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201 - the message is for the user, or the process that starts us
        return 1
    return 0


def _password(file: Path) -> str:
    """The password in `file`. Raises `OSError`, and `ValueError` for an empty file."""
    if not (password := file.read_text(encoding="ascii").strip()):
        raise ValueError(f"{file} is empty")
    return password


if __name__ == "__main__":
    sys.exit(main())
