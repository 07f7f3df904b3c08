"""Starts programs so that other users of the machine can run them, too."""

from __future__ import annotations

import os
import pwd
import sys
from pathlib import Path

from crawler.node.keeper import acting_as

#: The interpreter may lie in root's home, which is closed. Nothing outside of the test sees what is mounted here.
_OPEN_HOME = """
mkdir -p "$0" && mount --make-rprivate / && mount --bind "$HOME" "$0" && mount -t tmpfs -o mode=755 none "$HOME"
for name in $(ls -A "$0"); do
  if [ -d "$0/$name" ]; then mkdir "$HOME/$name" && mount --bind "$0/$name" "$HOME/$name"; fi
done
exec "$@"
"""


def for_others(folder: Path, uid: int) -> tuple[str, ...]:
    """What goes before a command so that this user can run our interpreter; nothing where it can. The folder must be
    one that it may pass.
    """
    with acting_as(uid, uid):
        if os.access(sys.executable, os.X_OK, effective_ids=True):
            return ()
    home = pwd.getpwuid(os.geteuid()).pw_dir
    return ("unshare", "--mount", "env", f"HOME={home}", "sh", "-ec", _OPEN_HOME, str(folder / "root"))
