"""Defines all environment variables, once each. Only composition roots read settings; other code takes arguments."""

from __future__ import annotations

import errno
import os
import re
import secrets
import socket
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property, lru_cache
from importlib.util import find_spec
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, cast
from urllib.parse import quote, unquote, urlsplit

from pydantic import BeforeValidator, Field, HttpUrl, SecretStr, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from gateway.clock import VERDICT_SECONDS
from gateway.contract.node_list import read_node_url
from gateway.contract.public_address import Network, is_loopback, parse_networks
from gateway.errors import SettingsError

if TYPE_CHECKING:
    from gateway.contract.bot_identity import BotIdentity

_ORIGIN = re.compile(r"(https?)://([a-z0-9.-]+|\[[0-9a-f:.]+\])(?::(\d{1,5}))?")
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_LAST_PORT = 65_535


def read_origin(text: str) -> str:
    """The origin in the form that browsers send. Raises `ValueError` if the text is not an origin."""
    found = _ORIGIN.fullmatch(text.strip().lower().removesuffix("/"))
    if not found or (found[3] and not 0 < int(found[3]) <= _LAST_PORT):
        why = "it would allow every page of the web" if "*" in text else "an origin looks like https://app.example"
        raise ValueError(f"{text!r} is not an origin: {why}")
    scheme, host, port = found.groups()
    return f"{scheme}://{host}" if port in {None, _DEFAULT_PORTS[scheme]} else f"{scheme}://{host}:{port}"


def read_files_url(text: str) -> str:
    """The URL of the file store: `s3://bucket/prefix`, or `file://` and an absolute path. The path alone is also
    accepted. Raises `ValueError`.
    """
    parts = urlsplit(text.strip() if "://" in text else f"file://{text.strip()}")
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError("must have no user, ? or #; the key of S3 is set by FILES_ACCESS_KEY and FILES_SECRET_KEY")
    if parts.scheme == "s3" and parts.netloc:
        return parts.geturl()
    if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
        return parts.geturl()
    raise ValueError(f"{text!r} is neither an absolute path nor s3://bucket/prefix")


#: The pattern of a node's name.
NODE_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
#: Variables with these prefixes are ours; if one of them is not a setting, it is a spelling mistake. (`NODE_` is not
#: in the list, because Node.js has such variables.)
OUR_PREFIXES = ("CRAWL_", "GATEWAY_", "DISCOVERYBOT_", "HTTP_CACHE_", "SCRAPYD_")
#: A variable that a stack sets for its gateway: the prefix of lines that the gateway writes for people. Even a quiet
#: stack shows such lines.
NOTICE = "DISCOVERYBOT_NOTICE"
#: Variables with these prefixes that other code reads: Scrapyd itself, processes in tests, and spiders.
OUTSIDE_SETTINGS = frozenset(
    {
        "SCRAPYD_BIND_ADDRESS",
        "SCRAPYD_HTTP_PORT",
        "SCRAPYD_UNIX_SOCKET_PATH",
        "SCRAPYD_EGG_VERSION",
        "DISCOVERYBOT_CRASH_PLAN",
        "DISCOVERYBOT_ATTEMPT_DIR",
        "DISCOVERYBOT_CONTINUES",
        "DISCOVERYBOT_MARK_FD",
        "DISCOVERYBOT_ENV_FD",
        "DISCOVERYBOT_EGG",
        "DISCOVERYBOT_SPIDER_MODULE",
        "DISCOVERYBOT_VENV",
        "DISCOVERYBOT_PROJECTS_PYTHON",
        "DISCOVERYBOT_BUILD",
        "DISCOVERYBOT_KEEPER",
        NOTICE,
        "DISCOVERYBOT_SECRETS",  # the folder of settings that are files
        "DISCOVERYBOT_URL",  # where the CLI finds the gateway
        "DISCOVERYBOT_KEY",  # the key that the CLI sends to the gateway
    }
)
_RATE = r"[1-9]\d{0,8}/([1-9]\d{0,3})?(second|minute|hour|day)s?"
#: A rate limit, in a subset of the counting library's notation.
_RATES = re.compile(rf"none|{_RATE}(\s*[;,]\s*{_RATE})*", re.IGNORECASE)
_CLASS = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_UIDS = re.compile(r"\d{1,10}-\d{1,10}")
#: User ids must be below this, the largest id, because it means "none" to the kernel.
_MOST_UIDS = 2**32 - 1
LogLevel = Annotated[str, Field(pattern="(?i)^(debug|info|warning|error|critical)$")]
Port = Annotated[int, Field(ge=1, le=65535)]


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        # the package that contains it does not exist
        return False


def _split(value: object) -> object:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


#: A list, separated by commas in an environment variable.
Listed = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
#: The value of `WEBHOOK_ALLOW_NETWORKS` that allows no networks, even if `CRAWL_ALLOW_NETWORKS` allows some.
NO_NETWORKS = ("none",)
#: Settings that contain a URL, each with the setting that contains the password of the URL's user.
_PASSWORDS = {
    "mongo_uri": "mongo_password",
    "redis_url": "redis_password",
    "rabbitmq_url": "rabbitmq_password",
    "http_cache_redis_url": "http_cache_redis_password",
}


#: Every spider can read the passwords in the first settings, so they must differ from all passwords in the second
#: ones.
_SEEN_BY_SPIDERS = ("http_cache_redis_url", "rate_limit_redis_url")
_KEPT_FROM_SPIDERS = ("scrapyd_password", "mongo_uri", "redis_url", "redis_password", "rabbitmq_url", "broker_url")


#: Files in DISCOVERYBOT_HOME.
SIGNING_KEY_FILE = "signing-key"
SECRETS_KEY_FILE = "secrets-key"
#: Folders in DISCOVERYBOT_HOME.
FILES_FOLDER = "files"
TABLES_FOLDER = "tables"
_MIN_KEY = 32


def _keys(text: SecretStr) -> tuple[str, ...]:
    return tuple(key.strip() for key in text.get_secret_value().split(","))


def kept_secret(file: Path) -> str:
    """The secret in this file, which only its owner can read. If the file does not exist, a secret is made and
    stored. Processes that do this at the same time get the same secret.

    Raises `OSError`.
    """
    if not file.exists():
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, made = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        with os.fdopen(descriptor, "w") as text:
            text.write(secrets.token_urlsafe(32) + "\n")
        with suppress(FileExistsError):  # another process was first
            os.link(made, file)
        Path(made).unlink()
    if not (kept := file.read_text().strip()):
        raise OSError(errno.EINVAL, "it is empty: remove it", str(file))
    return kept


class _Base(BaseSettings):
    model_config = SettingsConfigDict(extra="ignore", frozen=True, populate_by_name=True)

    @classmethod
    def load(cls) -> Self:
        """The settings in the environment. Missing ones are read from the files in the folder `DISCOVERYBOT_SECRETS`.
        Raises `SettingsError`, which lists all invalid settings.
        """
        environment = frozenset(item for item in os.environ.items() if item[0] not in OUTSIDE_SETTINGS)
        return cast("Self", _load(cls, environment, os.environ.get("DISCOVERYBOT_SECRETS")))

    @model_validator(mode="before")
    @classmethod
    def _insert_passwords(cls, values: Any) -> Any:
        for url, password in _PASSWORDS.items():
            default = cls.model_fields[url].default if url in cls.model_fields else None
            if values.get(password) and (location := values.get(url) or default):
                values[url] = _with_password(url, location, values[password])
        return values


def _with_password(name: str, url: str, password: str) -> str:
    """The URL with the password added, unless it has one already. Raises `ValueError` if it names no user."""
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    user, _, hosts = authority.rpartition("@")
    if not user and not scheme.startswith("redis"):
        raise ValueError(f"{_PASSWORDS[name].upper()} is set, but {name.upper()} names no user")
    return url if ":" in user else f"{scheme}://{user}:{quote(password, safe='')}@{hosts}{slash}{path}"


@lru_cache(maxsize=8)
def _load(model: type[_Base], _environment: frozenset[tuple[str, str]], secrets: str | None) -> _Base:
    """The settings, cached while the environment stays the same. A crawl loads them several times, which would take a
    millisecond each time. A forked crawl gets the settings that its warm process has read.
    """
    unknown = sorted(_unknown(os.environ))
    if unknown:
        raise SettingsError("unknown setting: " + ", ".join(unknown))
    try:
        _check_files(secrets)
        return model(_secrets_dir=secrets or None)
    except ValidationError as error:
        raise SettingsError("; ".join(_in_words(problem) for problem in error.errors())) from None
    except OSError as error:
        raise SettingsError(f"DISCOVERYBOT_SECRETS: {error.filename} cannot be read: {error.strerror}") from None


def _check_files(secrets: str | None) -> None:
    """Raises `SettingsError` for a file that is not named like a setting, and `OSError` if there is no such
    folder.
    """
    files = (path for path in Path(secrets).iterdir() if path.is_file() and path.name[0] != ".") if secrets else ()
    if unknown := sorted(path.name for path in files if path.name.lower() not in Settings.model_fields):
        raise SettingsError(f"DISCOVERYBOT_SECRETS: no settings have the names of these files: {', '.join(unknown)}")


def _in_words(problem: ErrorDetails) -> str:
    """The problem in words, such as `NODE_SLOTS: …`. If it is about several settings, its message already
    names them.
    """
    said = problem["msg"].removeprefix("Value error, ")
    return f"{str(problem['loc'][0]).upper()}: {said}" if problem["loc"] else said


def _unknown(environ: Mapping[str, str]) -> list[str]:
    known = {name.upper() for model in (Settings, NodeSettings) for name in model.model_fields} | OUTSIDE_SETTINGS
    return [name for name in environ if name.startswith(OUR_PREFIXES) and name not in known]


class NodeSettings(_Base):
    """The settings of a crawl node's processes. They include no secret that spiders must not read, because spiders
    run users' code.
    """

    #: The folder of all files that must survive a restart.
    discoverybot_home: Path = Path(".discoverybot")
    #: This node's name in `GET /nodes`. It must be unique, and the same after a restart.
    node_name: str = Field(default_factory=socket.gethostname, pattern=NODE_NAME)
    #: The URL at which workers reach this node's Scrapyd. Default: loopback at `SCRAPYD_PORT`.
    node_url: HttpUrl | None = None
    #: A folder that the nodes of this machine share. Each node has a subfolder `<NODE_NAME>-<n>`.
    nodes_dir: Path | None = None
    #: A range of user ids, `first-last`. Each project gets one of them. A node with this setting must be started by
    #: `crawler.node.keeper`.
    node_uids: str | None = None
    #: How many crawls may run at once on this node.
    node_slots: int = Field(default=8, ge=1, le=1000)
    #: Seconds for which an ended attempt's files stay on the node after everything is shipped.
    node_keep_seconds: int = Field(default=24 * 3600, ge=0)
    #: With fewer free bytes on its disk than this, the node gets no new work.
    node_min_free_bytes: int = Field(default=512 << 20, ge=0)
    #: With fewer free inodes than this, the node gets no new work. Each file and folder needs one inode.
    node_min_free_inodes: int = Field(default=10_000, ge=0)
    #: Whether crawls of the default project are forked from a warm process, which is faster than to start a process.
    node_fork: bool = True
    #: After this many forks the warm process is replaced.
    node_fork_renew_after: int = Field(default=1000, ge=1)
    #: How many crawls may use a browser at once on this node. Each of them also takes one of the node's slots.
    node_render_slots: int = Field(default=2, ge=0, le=1000)
    #: The Chromium that renders pages. Default: a Chromium on PATH, else Playwright's own.
    chromium_path: Path | None = None
    scrapyd_port: Port = 6800
    log_level: LogLevel = "info"
    #: URL of the Redis with the HTTP cache that spiders share; without it there is no cache.
    http_cache_redis_url: str | None = None
    #: The password for this URL, if the URL has none. Spiders see both.
    http_cache_redis_password: str | None = Field(default=None, repr=False)
    #: Seconds for which a cached page is used.
    http_cache_ttl: int = Field(default=3600, ge=0)
    #: The URL of the Redis in which crawls of one site share their rate limit. Default: `HTTP_CACHE_REDIS_URL`.
    rate_limit_redis_url: str | None = None
    #: Networks (CIDR, comma-separated) that crawls may reach although they are not public.
    crawl_allow_networks: Listed = ()
    #: Download handlers (dotted names of classes, comma-separated) that projects may use although their connections
    #: cannot be checked.
    crawl_allow_handlers: Listed = ()
    #: Seconds that a spider has to stop when it is asked to; then it gets SIGKILL.
    crawl_stop_grace: float = Field(default=10, ge=0)
    #: A spider that uses more bytes of memory than this, including its browser's, is stopped; 0 is no limit.
    crawl_memory_limit: int = Field(default=2 << 30, ge=0)
    #: How many processes, including a browser's, an attempt may have at once; 0 is no limit.
    crawl_max_processes: int = Field(default=256, ge=0)
    #: The largest page, in bytes, that a spider accepts, unless its project sets another limit (`DOWNLOAD_MAXSIZE`).
    crawl_page_bytes: int = Field(default=32 << 20, ge=1024)
    #: The largest limit of a page, in bytes, that a project may set.
    crawl_max_page_bytes: int = Field(default=256 << 20, ge=1024)
    #: The longest time, in seconds, that a spider may wait for one page. A project cannot raise it.
    crawl_max_page_seconds: float = Field(default=180, gt=0)
    #: Bytes of log that one attempt may write; 0 is no limit.
    crawl_max_log_bytes: int = Field(default=256 << 20, ge=0)
    #: Bytes that all stored files of one attempt may have together. An attempt that writes twice as many is stopped.
    files_max_bytes: int = Field(default=4 << 30, ge=0)
    #: How many files and folders one attempt may make; 0 is no limit. An attempt that makes more is stopped.
    crawl_max_entries: int = Field(default=200_000, ge=0)
    #: Bytes that one attempt's items, requests and frontier may have together; 0 is no limit. An attempt that writes
    #: more is stopped.
    crawl_max_record_bytes: int = Field(default=8 << 30, ge=0)
    #: Seconds without a log line, a request or an item after which a spider is stopped; 0 is no limit.
    crawl_stall_seconds: float = Field(default=900, ge=0)
    #: Whether a crawl stores the requests that it still has to make (its frontier), so that the next attempt can
    #: continue after a kill.
    crawl_frontier: bool = True
    #: How many requests of one crawl may be in progress, that is, sent and not completely processed; 0 is no limit.
    #: After a kill, only these requests are made again.
    crawl_max_undone: int = Field(default=0, ge=0)
    #: How many requests of one attempt are recorded; 0 records none.
    requests_max_count: int = Field(default=100_000, ge=0, le=1_000_000)
    #: Bytes that the record of an attempt's requests may have.
    requests_max_bytes: int = Field(default=64 << 20, ge=0, le=1 << 30)

    @field_validator("crawl_allow_networks")
    @classmethod
    def _check_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        parse_networks(value)
        return value

    @field_validator("crawl_allow_handlers")
    @classmethod
    def _check_handlers(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if wrong := [name for name in value if not _CLASS.fullmatch(name)]:
            raise ValueError(f"{wrong[0]!r} is not the dotted name of a class, like scrapy_zyte_api.handler.Handler")
        return value

    @field_validator("node_uids")
    @classmethod
    def _check_uids(cls, value: str | None) -> str | None:
        first, last = map(int, value.split("-")) if value and _UIDS.fullmatch(value) else (0, 0)
        if value is not None and not 0 < first <= last < _MOST_UIDS:
            raise ValueError("must be first-last, like 20000-29999: user ids above 0 that nobody else uses")
        return value

    @property
    def user_range(self) -> range:
        first, last = map(int, (self.node_uids or "1-0").split("-"))
        return range(first, last + 1)

    @cached_property
    def allowed_networks(self) -> tuple[Network, ...]:
        return parse_networks(self.crawl_allow_networks)

    @cached_property
    def node_dir(self) -> Path:
        return self.discoverybot_home.absolute() / "node"

    @cached_property
    def outbox(self) -> Path:
        return self.node_dir / "outbox"

    @property
    def node_base_url(self) -> str:
        return str(self.node_url or f"http://127.0.0.1:{self.scrapyd_port}").rstrip("/")


def _none_if_empty(value: object) -> object:
    return value or None


class ScrapydSettings(NodeSettings):
    """The settings that a node's Scrapyd may read, but its spiders must not."""

    scrapyd_username: str = "discoverybot"
    scrapyd_password: SecretStr = SecretStr("")
    #: The URL of the package index from which projects' requirements are installed, including its password if it has
    #: one; `none` for no index.
    project_index_url: str = "https://pypi.org/simple"
    #: Further indexes (comma-separated), which are searched first.
    project_extra_index_urls: Listed = ()
    #: Folders, or web pages with links, where wheels are found (comma-separated).
    project_wheels: Listed = ()
    #: Prefixes of URLs (comma-separated) that requirements may name directly: `name @ git+https://…`.
    project_sources: Listed = ()
    #: Whether packages without a wheel are built. A build runs the package's code as Scrapyd's own user.
    project_build_sources: bool = False
    #: Whether a project that cannot be imported gets well-known packages that it does not declare. If it has not been
    #: changed for a year, it also gets the versions of that time.
    project_lenient: bool = False
    #: Python versions that a project may ask for, in addition to the node's own (comma-separated): `found` for those
    #: on the machine, `download`, or folders that contain some.
    project_pythons: Listed = ("found",)
    #: Seconds that an installation may take.
    project_build_seconds: float = Field(default=600, gt=0)
    #: How many virtual environments have a warm process, from which their crawls are forked; 0 for none. Default: as
    #: many as fit into an eighth of the machine's memory.
    project_warm_processes: int | None = Field(default=None, ge=0, le=1000)
    #: Maximum number of bytes that a virtual environment may have.
    project_max_installed_bytes: int = Field(default=2 << 30, ge=1 << 20)
    #: An Ed25519 private key (PEM, or DER in base64) with which the default project's spiders sign their requests
    #: (Web Bot Auth).
    web_bot_auth_key: SecretStr | None = None
    #: The origin, such as `https://bots.example`, at which the gateway serves the directory with the public key.
    web_bot_auth_url: HttpUrl | None = None

    _no_identity_if_empty = field_validator("web_bot_auth_key", "web_bot_auth_url", mode="before")(_none_if_empty)

    @model_validator(mode="after")
    def _bot_has_key_and_url(self) -> Self:
        url = self.web_bot_auth_url
        if (self.web_bot_auth_key is None) != (url is None):
            raise ValueError("WEB_BOT_AUTH_KEY and WEB_BOT_AUTH_URL must be set together")
        if url and (url.scheme != "https" or (url.path or "/") != "/" or url.query):
            raise ValueError("WEB_BOT_AUTH_URL must be https:// and a host: sites look for the key there")
        _ = self.bot_identity
        return self

    @property
    def bot_identity(self) -> BotIdentity | None:
        if self.web_bot_auth_key is None:
            return None
        # imported here, because few processes need it
        from gateway.contract.bot_identity import BotIdentity, KeyUnreadableError  # noqa: PLC0415 - as above

        try:
            identity = BotIdentity(str(self.web_bot_auth_url).rstrip("/"), self.web_bot_auth_key.get_secret_value())
            _ = identity.key
        except KeyUnreadableError as error:
            raise ValueError(f"WEB_BOT_AUTH_KEY {error}") from None
        return identity

    @model_validator(mode="after")
    def _spiders_share_no_password(self) -> Self:
        seen = {password: name for name in _SEEN_BY_SPIDERS if (password := self._password(name))}
        for name in _KEPT_FROM_SPIDERS:
            if found := seen.get(self._password(name)):
                raise ValueError(
                    f"{found.upper()} has the same password as {name.upper()}, and every spider can read it: use a "
                    "Redis for spiders that has another password, or none"
                )
        return self

    def _password(self, name: str) -> str:
        """The password in this setting, or in its URL; empty if this process does not have the setting."""
        value = getattr(self, name, None) or ""
        text = value.get_secret_value() if isinstance(value, SecretStr) else str(value)
        return unquote(urlsplit(text).password or "") if name.endswith(("_url", "_uri")) else text

    @field_validator("project_warm_processes", mode="before")
    @classmethod
    def _memory_decides_if_empty(cls, value: object) -> object:
        return None if value == "" else value


class Settings(ScrapydSettings):
    """All settings, for the gateway, workers, beats, tailers and the CLI."""

    mongo_uri: str = "mongodb://127.0.0.1:27017/discoverybot"
    #: The password of the URI's user, if the URI has none.
    mongo_password: str | None = Field(default=None, repr=False)
    #: If this is set, `REDIS_HOST`, `REDIS_PORT` and `REDIS_DB` are ignored.
    redis_url: str | None = None
    redis_host: str = "127.0.0.1"
    redis_port: Port = 6379
    redis_db: int = Field(default=0, ge=0)
    #: The password at `REDIS_URL`, if the URL has none, or at `REDIS_HOST`.
    redis_password: str | None = Field(default=None, repr=False)
    #: Default: `RABBITMQ_URL` if it is set, otherwise Redis.
    broker_url: str | None = None
    rabbitmq_url: str | None = None
    #: The password of that URL's user, if the URL has none.
    rabbitmq_password: str | None = Field(default=None, repr=False)
    queue_name: str = "scraping"
    #: How many threads one worker has.
    worker_concurrency: int = Field(default=8, ge=1, le=256)
    gateway_host: str = "127.0.0.1"
    gateway_port: Port = 8001
    gateway_workers: int = Field(default=1, ge=1, le=64)
    #: The URL at which users reach the console, for links in the platform's messages. Default: `GATEWAY_PORT` on this
    #: machine.
    public_url: HttpUrl | None = None
    #: Origins (comma-separated) whose pages may call the gateway from a browser.
    gateway_cors_origins: Listed = ()
    #: Proxies in front of the gateway (addresses or CIDR, comma-separated), whose `X-Forwarded-For` is trusted.
    forwarded_allow_ips: Listed = ()
    #: Seconds for which a browser stays signed in.
    gateway_session_seconds: int = Field(default=12 * 3600, ge=60, le=30 * 24 * 3600)
    #: The secret that signs sessions and stream tokens. All gateways need the same one. Default: a secret that is
    #: made and stored in DISCOVERYBOT_HOME.
    gateway_signing_key: SecretStr | None = Field(default=None, min_length=_MIN_KEY)
    #: Keys that encrypt projects' secrets (comma-separated, each with at least 32 characters). The first key
    #: encrypts; all of them decrypt. Gateways and workers need the same keys. Default: a key that is made and stored
    #: in DISCOVERYBOT_HOME.
    secrets_key: SecretStr | None = None
    #: How many requests one caller may make, such as `1200/minute;50/second`; `none` for no limit. Default: no limit
    #: while there are no API keys, 1200 a minute when there are some.
    gateway_rate_limit: str | None = None
    #: How many calls of one user a gateway process handles at once, for each kind of call: reads, changes, reads of
    #: one document.
    gateway_user_calls: int = Field(default=4, ge=1, le=64)
    #: How many streams, downloads and waiting calls one user may have open at a gateway process.
    gateway_user_streams: int = Field(default=50, ge=1)
    #: How many crawls of one user may run at once, and how many may wait for a slot or for their start time; 0 is no
    #: limit.
    crawl_user_running_max: int = Field(default=0, ge=0)
    crawl_user_waiting_max: int = Field(default=0, ge=0)
    #: How many schedules one user may have, and how many runs these may begin within a minute; 0 is no limit.
    crawl_user_schedules_max: int = Field(default=1000, ge=0)
    crawl_user_scheduled_per_minute: int = Field(default=0, ge=0)
    #: How many crawls of all users may wait; 0 is no limit.
    crawl_queue_max: int = Field(default=0, ge=0)
    #: Seconds for which a repeated request gets the existing job.
    crawl_cache_ttl: int = Field(default=3600, ge=1)
    #: Seconds for which a live log stays in Redis after its last line.
    result_ttl: int = Field(default=3600, ge=60)
    #: Seconds that an attempt may take, unless the request sets another limit.
    job_timeout: int = Field(default=3600, ge=1)
    #: The longest time limit, in seconds, that a request or a project's `CLOSESPIDER_TIMEOUT` may set.
    job_max_timeout: int = Field(default=604_800, ge=1, le=604_800)
    #: How many retries may follow the first attempt, unless the request sets another number.
    max_retries: int = Field(default=3, ge=0, le=20)
    #: Networks (CIDR, comma-separated) in which webhooks may be called although they are not public, or `none`.
    #: Default: `CRAWL_ALLOW_NETWORKS`.
    webhook_allow_networks: Listed = ()
    #: Days for which a job, its items and its log are kept after its end; 0 for ever.
    job_retention_days: float = Field(default=90, ge=0, le=36_500)
    item_retention_days: float = Field(default=90, ge=0, le=36_500)
    log_retention_days: float = Field(default=30, ge=0, le=36_500)
    #: Days after which a paused job is cancelled; 0 for never.
    paused_job_days: float = Field(default=7, ge=0, le=36_500)
    #: Days for which audit entries are kept.
    audit_retention_days: float = Field(default=365, ge=0, le=36_500)
    #: Days for which the changes of datasets are kept.
    change_retention_days: float = Field(default=90, ge=0, le=36_500)
    #: Days for which calls of webhooks and endpoints are kept, with their bodies.
    delivery_retention_days: float = Field(default=30, ge=4, le=36_500)
    #: Seconds that `POST /jobs/scrape?mode=sync` waits for the run to end.
    scrape_sync_timeout: float = Field(default=30, gt=0, le=600)
    #: Where the files that crawls write are stored: a folder, or `s3://bucket/prefix`. Gateways, workers and tailers
    #: need the same one. Default: `files` in DISCOVERYBOT_HOME.
    files_url: str | None = None
    #: For S3: the server (default: Amazon's), its region, and the key. Without them, the `AWS_…` variables are used.
    files_endpoint: HttpUrl | None = None
    files_region: str | None = None
    files_access_key: str | None = None
    files_secret_key: SecretStr | None = None
    #: How many files of one attempt are kept, and how large each may be.
    files_max_count: int = Field(default=10_000, ge=0, le=1_000_000)
    files_max_file_bytes: int = Field(default=1 << 30, ge=0)
    #: Where exports may be written (comma-separated): folders, or `s3://bucket/prefix`; `{user}` is replaced by the
    #: user's name. For S3, the `FILES_…` options apply. Default: nowhere, so exports are not possible.
    export_to: Listed = ()
    #: Maximum number of bytes that the rows of an XLSX or Parquet file may have as JSON. They are on disk while it is
    #: made.
    table_max_bytes: int = Field(default=2 << 30, ge=1 << 20)
    #: Seconds between two ticks of a beat. A tick finds work whose message was lost.
    tick_seconds: float = Field(default=1.0, gt=0, le=60)
    #: The Scrapyd URLs of the nodes that get work (comma-separated). Default: all nodes that register themselves.
    scrapyd_url: Listed = ()
    #: Seconds without a heartbeat after which a node counts as dead.
    node_dead_after: float = Field(default=30, ge=4 * VERDICT_SECONDS)
    #: The URL, without `/v1/traces`, of the collector to which gateways, workers and beats send traces (OTLP over
    #: HTTP). Default: no traces. The SDK itself reads all other `OTEL_…` variables.
    otel_exporter_otlp_endpoint: HttpUrl | None = Field(default=None, repr=False)
    #: The longest pause, in seconds, before `discoverybot up` restarts a process that keeps dying.
    discoverybot_restart_backoff_max: float = Field(default=10, gt=0)

    @field_validator("broker_url")
    @classmethod
    def _require_broker_library(cls, value: str | None) -> str | None:
        if value and value.startswith("sqs:") and not all(map(find_spec, ("boto3", "pycurl"))):
            raise ValueError("sqs:// needs `pip install 'discoverybot[sqs]'`")
        return value

    @field_validator("otel_exporter_otlp_endpoint")
    @classmethod
    def _require_otel(cls, value: HttpUrl | None) -> HttpUrl | None:
        if value and not all(map(_is_installed, ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"))):
            raise ValueError("traces need `pip install 'discoverybot[otel]'`")
        return value

    @field_validator("forwarded_allow_ips")
    @classmethod
    def _read_proxies(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(str(ip_network(one)) for one in value)

    @field_validator("gateway_cors_origins")
    @classmethod
    def _read_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(read_origin(one.rstrip("/")) for one in value)

    @field_validator("scrapyd_url")
    @classmethod
    def _read_nodes(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(read_node_url(one.rstrip("/")) for one in value)

    @field_validator("gateway_rate_limit")
    @classmethod
    def _check_rate_limit(cls, value: str | None) -> str | None:
        if value is not None and not _RATES.fullmatch(value.strip()):
            raise ValueError("must be like 1200/minute;50/second (second, minute, hour or day), or none")
        return value.strip() if value else None

    _no_place_if_empty = field_validator(
        *("files_url", "files_endpoint", "files_region", "files_access_key", "otel_exporter_otlp_endpoint"),
        "public_url",
        mode="before",
    )(_none_if_empty)

    @field_validator("files_url")
    @classmethod
    def _check_files_url(cls, value: str | None) -> str | None:
        return value and read_files_url(value)

    @field_validator("export_to")
    @classmethod
    def _check_export_to(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(read_files_url(place).rstrip("/") for place in value)

    @field_validator("secrets_key")
    @classmethod
    def _check_secrets_key(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and any(len(key) < _MIN_KEY for key in _keys(value)):
            raise ValueError(f"each key must have at least {_MIN_KEY} characters")
        return value

    @model_validator(mode="after")
    def _mongo_names_a_database(self) -> Self:
        if not self.mongo_uri.startswith(("mongodb://", "mongodb+srv://")):
            raise ValueError("MONGO_URI must begin with mongodb:// or mongodb+srv://")
        return self

    @field_validator("webhook_allow_networks")
    @classmethod
    def _check_webhook_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        parse_networks(() if value == NO_NETWORKS else value)
        return value

    @cached_property
    def webhook_networks(self) -> tuple[Network, ...]:
        """The networks in which webhooks may be called."""
        own = self.webhook_allow_networks
        return self.allowed_networks if not own else parse_networks(() if own == NO_NETWORKS else own)

    @property
    def public_address(self) -> str:
        """`PUBLIC_URL` without a slash at its end, or its default."""
        return str(self.public_url or f"http://127.0.0.1:{self.gateway_port}").rstrip("/")

    @property
    def gateway_address(self) -> str:
        """`GATEWAY_HOST` in the form for a socket: an IPv6 address without brackets."""
        return self.gateway_host.strip("[]")

    @property
    def serves_others(self) -> bool:
        """Whether other machines can reach the gateway. If so, it serves only callers with a key."""
        return not is_loopback(self.gateway_host)

    @property
    def signing_key(self) -> str:
        """The key that signs sessions. Raises `SettingsError` if no key is set and none can be stored."""
        if self.gateway_signing_key:
            return self.gateway_signing_key.get_secret_value()
        return self._kept("GATEWAY_SIGNING_KEY", SIGNING_KEY_FILE)

    @property
    def secrets_keys(self) -> tuple[str, ...]:
        """The keys for secrets: the first one encrypts, all can decrypt. Raises `SettingsError` if no key is set and
        none can be stored.
        """
        return _keys(self.secrets_key) if self.secrets_key else (self._kept("SECRETS_KEY", SECRETS_KEY_FILE),)

    @property
    def files_location(self) -> str:
        return self.files_url or f"file://{self.discoverybot_home.absolute() / FILES_FOLDER}"

    @property
    def tables_folder(self) -> Path:
        return self.discoverybot_home.absolute() / TABLES_FOLDER

    def _kept(self, setting: str, file: str) -> str:
        try:
            return kept_secret(self.discoverybot_home.absolute() / file)
        except OSError as error:
            raise SettingsError(
                f"{setting} is not set, and cannot be stored in {error.filename}: {error.strerror}"
            ) from None

    @property
    def redis_location(self) -> str:
        location = self.redis_url or f"redis://{self.redis_host}:{self.redis_port}/{self.redis_db}"
        return _with_password("redis_url", location, self.redis_password) if self.redis_password else location

    @property
    def broker_location(self) -> str:
        return self.broker_url or self.rabbitmq_url or self.redis_location
