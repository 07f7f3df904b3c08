"""Names that the environment variables of a project or a crawl must not have."""

from __future__ import annotations

import re

VARIABLE_PATTERN = r"^[A-Z_][A-Z0-9_]{0,99}$"
_VARIABLE = re.compile(VARIABLE_PATTERN)

#: Prefixes of variables that the platform reads in a spider's process. `NODE_` is also read by Node.js for the
#: browser.
_OURS = ("CRAWL_", "DISCOVERYBOT_", "GATEWAY_", "HTTP_CACHE_", "NODE_", "SCRAPY_", "SCRAPYD_")
_OURS_ALONE = frozenset(
    {
        *("CHROMIUM_PATH", "FILES_MAX_BYTES", "LOG_LEVEL", "NODES_DIR", "RATE_LIMIT_REDIS_URL"),
        *("REQUESTS_MAX_BYTES", "REQUESTS_MAX_COUNT"),
    }
)
_SYSTEM = ("DYLD_", "GLIBC_", "LC_", "LD_", "MALLOC_", "OPENSSL_", "PLAYWRIGHT_", "PYTHON", "SSL_CERT_")
_SYSTEM_ALONE = frozenset(
    {
        *("BASH_ENV", "ENV", "GCONV_PATH", "HOME", "IFS", "LANG", "PATH", "PWD", "SHELL", "SSLKEYLOGFILE", "TMPDIR"),
        *("TZ", "USER", "VIRTUAL_ENV", "ALL_PROXY", "FTP_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
    }
)


def refused_variable(name: str) -> str | None:
    """Why a project or a crawl must not have a variable of this name; `None` if it may."""
    if not _VARIABLE.fullmatch(name):
        return "a name is up to 100 capital letters, digits and _, and does not begin with a digit"
    if name.startswith(_OURS) or name in _OURS_ALONE:
        return "this name is the platform's own"
    if name.startswith(_SYSTEM) or name in _SYSTEM_ALONE:
        return "this name decides how a process of the node runs: set it on the node"
    return None
