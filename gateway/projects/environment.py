"""The environment variables, some of them secret, and the Scrapy settings that a project gives its crawls.

Secrets are encrypted ("sealed", AES-256-GCM) with a key that is not in the database. Only gateways and workers have
the key: a worker decrypts ("opens") secrets when it posts an attempt to a node, and sends them beside the spec.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Self

import orjson
from attrs import define
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import BaseModel, ConfigDict, Field
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from gateway.clock import Clock, utc_now
from gateway.contract.crawl import DEFAULT_PROJECT, CrawlSpec
from gateway.contract.environment import (
    MAX_CRAWL_BYTES,
    MAX_PROJECT_BYTES,
    RefusedValueError,
    check_settings,
    check_variables,
    refused_run_setting,
)
from gateway.crash_points import state_change
from gateway.errors import ConflictError, InvalidRequestError, SecretsKeyError, VariableNotFoundError
from gateway.stores.documents import Documents, reader
from gateway.stores.mongo import Document, mongo_errors

#: How often a change is tried while others change the same project.
_MAX_ROUNDS = 20

# --- secrets

_FORMAT = "v1"
#: In place of a project, for the secrets of users, which sign the calls of their webhooks.
NO_PROJECT = ""
_NONCE_BYTES = 12


class SecretBox:
    """Seals and opens secrets. A sealed secret names its key. It can only be opened as the variable for which it was
    sealed: a copy under another project or name cannot.
    """

    def __init__(self, keys: Callable[[], Sequence[str]]) -> None:
        """`keys` returns texts of high entropy, or raises `SecretsKeyError`. The first key seals; all keys
        can open.
        """
        self._keys = keys

    def seal(self, project: str, name: str, value: str) -> str:
        """The sealed value. Raises `SecretsKeyError` if there is no key."""
        key, nonce = self._keys()[0], os.urandom(_NONCE_BYTES)
        content = _cipher(key).encrypt(nonce, value.encode(), _owner(project, name))
        return f"{_FORMAT}.{key_id(key)}.{base64.urlsafe_b64encode(nonce + content).decode()}"

    def open(self, project: str, name: str, sealed: str) -> str:
        """The value. Raises `SecretsKeyError`, which names the variable and the key, and reveals nothing about the
        value.
        """
        _, wanted, content = sealed.split(".")
        key = next((key for key in self._keys() if key_id(key) == wanted), None)
        if key is None:
            raise SecretsKeyError(
                f"{_called(project, name)} is sealed with the key {wanted}, which is not in SECRETS_KEY "
                "of this process: all gateways and workers need the same keys"
            )
        data = base64.urlsafe_b64decode(content)
        try:
            value = _cipher(key).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], _owner(project, name))
        except InvalidTag:
            raise SecretsKeyError(f"{_called(project, name)} was changed in the database: set it again") from None
        return value.decode()

    def is_current(self, sealed: str) -> bool:
        """Whether it is sealed with the first key."""
        return sealed.split(".")[1] == key_id(self._keys()[0])


def key_id(key: str) -> str:
    """A short id of the key, which reveals nothing else about it."""
    return hashlib.sha256(b"discoverybot key id\0" + key.encode()).hexdigest()[:8]


def _cipher(key: str) -> AESGCM:
    return AESGCM(hashlib.sha256(b"discoverybot project secrets\0" + key.encode()).digest())


def _called(project: str, name: str) -> str:
    if project == NO_PROJECT:
        return f"the webhook secret of {name!r}"
    return f"secret {name} of project {project!r}"


def _owner(project: str, name: str) -> bytes:
    return f"{project}\0{name}".encode()


# --- the `projects` collection: one document for each project that has variables or settings


class Variable(BaseModel):
    """A variable. It has either `value` or, if it is secret, `sealed`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    value: str | None = Field(default=None, repr=False)
    sealed: str | None = Field(default=None, repr=False)
    #: The size of its value in JSON, in bytes.
    size: int
    updated_at: datetime

    @property
    def is_secret(self) -> bool:
        return self.sealed is not None


class ProjectConfig(BaseModel):
    """What is stored for one project. `_id` is its name in lower case: names that differ only in case are
    the same.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    id: str = Field(alias="_id")
    #: Increased by one with each change.
    rev: int = 0
    env: dict[str, Variable] = Field(default_factory=dict)
    #: JSON text, because settings may contain class names, whose dots MongoDB's field names must not have.
    settings_json: str = "{}"
    #: Settings that a crawl may set, in addition to harmless settings of Scrapy.
    opened: tuple[str, ...] = ()
    #: The variables that a crawl may set. All others are refused: they could make a spider send a secret elsewhere.
    opened_env: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = orjson.loads(self.settings_json)
        return settings

    def changed(self, **fields: Any) -> Self:
        return self.model_copy(update={"rev": self.rev + 1, **fields})


class ProjectStore:
    """The collection `projects`."""

    def __init__(self, database: Database[Document]) -> None:
        self._projects = database["projects"]
        self._documents = Documents(self._projects, reader(ProjectConfig))

    def get(self, project: str) -> ProjectConfig:
        """The project's variables and settings; empty if it has none. Raises `UnreadableError`."""
        name = project.lower()
        document = self._projects.find_one({"_id": name})
        return self._documents.one(document) if document else ProjectConfig(id=name)

    def all(self) -> list[ProjectConfig]:
        return self._documents.many(self._projects.find())

    def configured(self) -> frozenset[str]:
        """Lower-case names of the projects that give their crawls variables or settings."""
        has_any = {"$or": [{"env": {"$ne": {}}}, {"settings_json": {"$ne": "{}"}}]}
        return frozenset(one["_id"] for one in self._projects.find(has_any, {"_id": 1}))

    @state_change("projects.put")
    def put(self, config: ProjectConfig) -> bool:
        """Store this revision. Returns false if it is not the one after the stored revision."""
        document = config.model_dump(by_alias=True, exclude_none=True)
        query = {"_id": config.id, "rev": config.rev - 1}
        try:
            # if another revision is stored, the upsert is refused as a duplicate
            result = self._projects.replace_one(query, document, upsert=config.rev == 1)
        except DuplicateKeyError:
            return False
        return bool(result.matched_count or result.upserted_id)


# --- changes what a project gives its crawls, and hands it to attempts


class NewVariable(NamedTuple):
    """What a variable is to be."""

    #: `None` if the variable keeps its value.
    value: str | None
    secret: bool = False


class HandedOver(NamedTuple):
    """The variables and settings that an attempt gets with its spec."""

    #: It contains opened secrets, so it is never stored or logged.
    env: dict[str, str]
    settings: dict[str, Any]


@define(eq=False, repr=False, slots=False)
class ProjectEnvironment:
    """The variables and settings of projects. Methods raise `InvalidRequestError`, `SecretsKeyError`,
    `ConflictError`, `UnavailableError`.
    """

    _store: ProjectStore
    _box: SecretBox
    _clock: Clock = utc_now

    def get(self, project: str) -> ProjectConfig:
        with mongo_errors():
            return self._store.get(_deployed(project))

    def set(self, project: str, name: str, value: str, *, secret: bool) -> ProjectConfig:
        """Set one variable. A variable that was secret stays secret."""

        def change(config: ProjectConfig) -> dict[str, NewVariable]:
            kept = {each: NewVariable(None, one.is_secret) for each, one in config.env.items()}
            was_secret = name in config.env and config.env[name].is_secret
            return {**kept, name: NewVariable(value, secret or was_secret)}

        return self._change_env(project, change)

    def replace(self, project: str, variables: Mapping[str, NewVariable]) -> ProjectConfig:
        """Replace all variables. Variables that are not named are removed; those without a value keep theirs."""
        return self._change_env(project, lambda _: variables)

    def unset(self, project: str, name: str) -> ProjectConfig:
        """Remove one variable. Raises `VariableNotFoundError`."""

        def change(config: ProjectConfig) -> dict[str, NewVariable]:
            if name not in config.env:
                raise VariableNotFoundError(project, name)
            return {each: NewVariable(None, one.is_secret) for each, one in config.env.items() if each != name}

        return self._change_env(project, change)

    def set_settings(
        self, project: str, settings: Mapping[str, Any], opened: Sequence[str] = (), opened_env: Sequence[str] = ()
    ) -> ProjectConfig:
        """Replace the project's settings, and the names of the settings and variables that its crawls may set."""
        for field, names in (("settings", settings), ("open", dict.fromkeys(opened))):
            try:
                check_settings(names)
            except RefusedValueError as error:
                raise _invalid(field, error) from None
        try:
            check_variables(dict.fromkeys(opened_env, ""), MAX_PROJECT_BYTES)
        except RefusedValueError as error:
            raise _invalid("open_env", error) from None
        lists = {"opened": tuple(dict.fromkeys(opened)), "opened_env": tuple(dict.fromkeys(opened_env))}
        text = orjson.dumps(settings).decode()
        return self._change(project, lambda _: {"settings_json": text, **lists})

    def seal_anew(self) -> int:
        """Seal all secrets that an older key has sealed with the first key, so that older keys can be removed.
        Returns how many secrets were sealed again.
        """
        count = 0
        for present in self._store.all():
            if old := self._sealed_anew(present):
                self._change(present.id, lambda config: {"env": {**config.env, **self._sealed_anew(config)}})
            count += len(old)
        return count

    def check(self, spec: CrawlSpec) -> None:
        """Check that the crawl may set its own settings and variables."""
        if spec.env and spec.project == DEFAULT_PROJECT:
            raise InvalidRequestError("env", "the platform's own spiders read no variables: use params instead")
        doubtful = [name for name, value in spec.settings.items() if refused_run_setting(name, value)]
        if not doubtful and not spec.env:
            return
        # nothing is stored for the default project
        config = ProjectConfig(id=DEFAULT_PROJECT) if spec.project == DEFAULT_PROJECT else self.get(spec.project)
        for name in doubtful:
            if problem := refused_run_setting(name, spec.settings[name], config.opened):
                raise InvalidRequestError(f"settings.{name}", problem)
        try:
            check_variables(spec.env, MAX_CRAWL_BYTES)
        except RefusedValueError as error:
            raise _invalid("env", error) from None
        if closed := [name for name in spec.env if name not in config.opened_env]:
            message = "a crawl may not set it, unless an admin opens it with `PUT /projects/{project}/settings`"
            raise InvalidRequestError(f"env.{closed[0]}", message)

    def handed_over(self, spec: CrawlSpec) -> HandedOver:
        """The project's variables and settings, overridden by the crawl's, with all secrets opened."""
        if spec.project == DEFAULT_PROJECT:
            # nothing is stored for the default project, so MongoDB is not asked
            return HandedOver({}, spec.settings)
        config = self._store.get(spec.project)
        env = {name: self._opened(config, name) for name in config.env if name not in spec.env}
        return HandedOver({**env, **spec.env}, {**config.settings, **spec.settings})

    def _opened(self, config: ProjectConfig, name: str) -> str:
        variable = config.env[name]
        return self._box.open(config.id, name, variable.sealed) if variable.sealed else variable.value or ""

    def _sealed_anew(self, config: ProjectConfig) -> dict[str, Variable]:
        old = [name for name, one in config.env.items() if one.sealed and not self._box.is_current(one.sealed)]
        return {name: self._variable(config, name, self._opened(config, name), secret=True) for name in old}

    def _change_env(
        self, project: str, wanted: Callable[[ProjectConfig], Mapping[str, NewVariable]]
    ) -> ProjectConfig:
        return self._change(project, lambda config: {"env": self._made(config, wanted(config))})

    def _made(self, config: ProjectConfig, wanted: Mapping[str, NewVariable]) -> dict[str, Variable]:
        """The stored form of the variables. No secret is opened, so that a secret can be replaced or removed even if
        its key is lost.
        """
        given = {name: new.value or "" for name, new in wanted.items()}
        try:
            check_variables(given, MAX_PROJECT_BYTES)
            made = {name: self._next(config, name, new) for name, new in wanted.items()}
        except RefusedValueError as error:
            raise _invalid("variables", error) from None
        if sum(len(name) + one.size for name, one in made.items()) > MAX_PROJECT_BYTES:
            message = f"all variables together must not be larger than {MAX_PROJECT_BYTES} bytes of JSON"
            raise InvalidRequestError("variables", message)
        return made

    def _next(self, config: ProjectConfig, name: str, new: NewVariable) -> Variable:
        if new.value is not None:
            return self._variable(config, name, new.value, secret=new.secret)
        present = config.env.get(name)
        if present is None:
            raise RefusedValueError("has no value yet: give one", name)
        if present.is_secret and not new.secret:
            raise RefusedValueError("is secret; to show it from now on, give its value", name)
        if present.is_secret == new.secret:
            return present
        return self._variable(config, name, present.value or "", secret=True)

    def _variable(self, config: ProjectConfig, name: str, value: str, *, secret: bool) -> Variable:
        size, now = len(orjson.dumps(value)), self._clock()
        if secret:
            return Variable(sealed=self._box.seal(config.id, name, value), size=size, updated_at=now)
        return Variable(value=value, size=size, updated_at=now)

    def _change(self, project: str, change: Callable[[ProjectConfig], dict[str, Any]]) -> ProjectConfig:
        name = _deployed(project)
        with mongo_errors():
            for _ in range(_MAX_ROUNDS):
                config = self._store.get(name)
                changed = config.changed(**change(config))
                if self._store.put(changed):
                    return changed
        raise ConflictError("the project keeps changing; ask again")


def _deployed(project: str) -> str:
    if project.lower() in {DEFAULT_PROJECT, "discoverybot"}:
        raise InvalidRequestError(
            "project",
            "the platform's own spiders have no variables or settings here: name those of a crawl in its request",
        )
    return project


def _invalid(field: str, refused: RefusedValueError) -> InvalidRequestError:
    return InvalidRequestError(f"{field}.{refused.name}" if refused.name else field, refused.problem)
