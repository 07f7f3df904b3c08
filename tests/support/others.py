"""Starts programs so that other users of the machine can run them, too."""

from __future__ import annotations

import os
import pwd
import sys
from pathlib import Path

from crawler.node.keeper import acting_as

#: The interpreter may be in root's home, which is closed. These mounts are only visible to the test.
_OPEN_HOME = """
mkdir -p "$0" && mount --make-rprivate / && mount --bind "$HOME" "$0" && mount -t tmpfs -o mode=755 none "$HOME"
for name in $(ls -A "$0"); do
  if [ -d "$0/$name" ]; then mkdir "$HOME/$name" && mount --bind "$0/$name" "$HOME/$name"; fi
done
exec "$@"
"""


def for_others(folder: Path, uid: int) -> tuple[str, ...]:
    """A prefix for a command that lets this user run our interpreter; empty if the user can do that anyway. The user
    must be able to pass through the folder.
    """
    with acting_as(uid, uid):
        if os.access(sys.executable, os.X_OK, effective_ids=True):
            return ()
    home = pwd.getpwuid(os.geteuid()).pw_dir
    return ("unshare", "--mount", "env", f"HOME={home}", "sh", "-ec", _OPEN_HOME, str(folder / "root"))
