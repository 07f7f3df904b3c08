"""Our own MongoDB server, with users and roles created by commands for `mongosh`.

`python mongo_users.py FILE DATABASE PORT`: FILE contains those commands, and is read again for each command.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from pathlib import Path
from typing import Any

from embedded.mongo import server
from embedded.mongo.errors import Code, MongoError
from embedded.mongo.login import COMMANDS, USER, Credentials, Login

_DATABASE = "discoverybot"
_USER = re.compile(r"db\.createUser\(\{user: '([^']+)', pwd: '([^']+)', roles: \[(.*)\]\}\)")
_ROLE = re.compile(r"db\.createRole\(\{role: '(\w+)', roles: \[\], privileges: \[([^\]]+)\]\.map", re.DOTALL)
_DROP = re.compile(r"db\.dropUser\('([^']+)'\)")
#: Commands that read or write one collection.
_IN_ONE = frozenset(
    {"find", "aggregate", "count", "distinct", "insert", "update", "delete", "findAndModify", "getMore"}
)


#: Commands that need no right.
_FREE = frozenset({*COMMANDS, "hello", "isMaster", "ismaster", "ping", "buildInfo", "buildinfo"})
_FREE |= {"endSessions", "killCursors"}


class Told:
    """The users and their rights."""

    def __init__(self, file: Path) -> None:
        text = file.read_text()
        found = {name: (password, roles) for name, password, roles in _USER.findall(text)}
        self.users = {name: who for name, who in found.items() if name not in _DROP.findall(text)}
        self._roles = {name: frozenset(re.findall(r"'(\w+)'", listed)) for name, listed in _ROLE.findall(text)}

    def may(self, user: str, command: dict[str, Any]) -> bool:
        name = next(iter(command))
        roles = self.users[user][1]
        if "readWrite" in roles:
            return command["$db"] == _DATABASE
        role = self._roles.get(roles.strip("'"), frozenset[str]())
        collection = command.get("collection") if name == "getMore" else command[name]
        return command["$db"] == _DATABASE and name in _IN_ONE and collection in role


class LoginAsTold(Login):
    """A login that knows all these users; the server's own knows only one."""

    def __init__(self, file: Path) -> None:
        super().__init__(Credentials("nobody's"))
        self._file = file
        self._user = ""

    def answer(self, command: dict[str, Any]) -> dict[str, Any] | None:
        if next(iter(command)) == "saslStart":
            return self._begin(command)
        reply = super().answer(command)
        if reply is not None or next(iter(command)) in _FREE:
            return reply
        if self._user in (told := Told(self._file)).users and told.may(self._user, command):
            return None
        return MongoError(Code.Unauthorized, f"not authorized to execute command {command}").as_reply()

    def _begin(self, command: dict[str, Any]) -> dict[str, Any] | None:
        named = re.search(r"n=([^,]+)", bytes(command["payload"]).decode().removeprefix("n,,"))
        self._user = named[1] if named else ""
        password, _ = Told(self._file).users.get(self._user, ("nobody's", ""))
        self._credentials = Credentials(password)
        reply = super().answer(command)
        if self._exchange:
            self._exchange = self._exchange._replace(user=USER)
        return reply


def main(told: str, database: str, port: str) -> None:
    logging.basicConfig(level=logging.INFO)
    server.Login = lambda _: LoginAsTold(Path(told))  # type: ignore[assignment,misc]  # for each connection
    asyncio.run(server.serve(Path(database), "127.0.0.1", int(port)))


if __name__ == "__main__":
    main(*sys.argv[1:])
