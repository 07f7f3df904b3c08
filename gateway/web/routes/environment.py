"""`/projects/{project}/env` and `/settings`: what a deployed project gives to its crawls."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from gateway.access.keys import Scope
from gateway.contract.environment import MAX_PROJECT_BYTES, MAX_VARIABLES, SETTING_PATTERN
from gateway.contract.variable_names import VARIABLE_PATTERN
from gateway.projects.environment import NewVariable, ProjectConfig, ProjectEnvironment
from gateway.web.authorisation import needs
from gateway.web.dependencies import Parts, Router
from gateway.web.errors import problems
from gateway.web.routes.projects import ProjectName
from gateway.web.schemas.types import Timestamp

_SECRET: JsonDict = {"value": "sk_live_4242", "secret": True}
_ENVIRONMENT: JsonDict = {
    "project": "shop",
    "variables": [
        {"name": "API_KEY", "secret": True, "value": None, "updated_at": "2027-06-01T09:00:00.000Z"},
        {"name": "SHOP_REGION", "secret": False, "value": "eu", "updated_at": "2027-06-01T09:00:00.000Z"},
    ],
}
_SETTINGS: JsonDict = {
    "settings": {"DOWNLOAD_DELAY": 1.5, "SHOP_PAGES": 3},
    "open": ["SHOP_PAGES"],
    "open_env": ["SHOP_REGION"],
}

VariableName = Annotated[
    str,
    Path(
        pattern=VARIABLE_PATTERN,
        description="Capital letters, digits and `_`; no name by which the platform or the system runs a process.",
        examples=["API_KEY"],
    ),
]
Value = Annotated[str, Field(max_length=MAX_PROJECT_BYTES)]


class VariableReplace(BaseModel):
    """One variable."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [_SECRET]})

    value: Value
    secret: bool = Field(
        default=False, description="Sealed, and never shown again. What is secret already stays so in any case."
    )


class VariableWish(BaseModel):
    """A variable to set."""

    model_config = ConfigDict(extra="forbid", strict=True)

    value: Value | None = Field(default=None, description="Null: the one that it has stays.")
    secret: bool = False


class EnvironmentReplace(BaseModel):
    """All variables of a project: those that are not named are removed."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [{"variables": {"API_KEY": {"secret": True}, "SHOP_REGION": {"value": "eu"}}}]
        },
    )

    variables: Annotated[
        dict[Annotated[str, Field(pattern=VARIABLE_PATTERN)], VariableWish],
        Field(max_length=MAX_VARIABLES, description="By their names."),
    ]


class VariableView(BaseModel):
    """A variable of a project; of a secret without its value."""

    name: str
    secret: bool
    value: str | None = Field(description="Null for a secret: it cannot be read, only replaced.")
    updated_at: Timestamp


class EnvironmentView(BaseModel):
    """The variables of a project, by name."""

    model_config = ConfigDict(json_schema_extra={"examples": [_ENVIRONMENT]})

    project: str
    variables: list[VariableView]

    @classmethod
    def of(cls, project: str, config: ProjectConfig) -> EnvironmentView:
        variables = [
            VariableView(name=name, secret=one.is_secret, value=one.value, updated_at=one.updated_at)
            for name, one in sorted(config.env.items())
        ]
        return cls(project=project, variables=variables)


class SettingsReplace(BaseModel):
    """All settings of a project: those that are not named are removed."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [_SETTINGS]})

    settings: dict[str, Any] = Field(
        description="Scrapy's, or the project's own; over those in its code, below those of a crawl."
    )
    open: list[Annotated[str, Field(pattern=SETTING_PATTERN)]] = Field(
        default_factory=list, max_length=100, description="Settings that any crawl of the project may set, too."
    )
    open_env: list[Annotated[str, Field(pattern=VARIABLE_PATTERN)]] = Field(
        default_factory=list, max_length=MAX_VARIABLES, description="Variables that any crawl of the project may set."
    )


class SettingsView(BaseModel):
    """The settings of a project that were set here."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"project": "shop", **_SETTINGS}]})

    project: str
    settings: dict[str, Any]
    open: list[str]
    open_env: list[str]

    @classmethod
    def of(cls, project: str, config: ProjectConfig) -> SettingsView:
        lists = {"open": list(config.opened), "open_env": list(config.opened_env)}
        return cls(project=project, settings=config.settings, **lists)


router = Router(prefix="/projects/{project}", tags=["projects"])


@router.get("/env", summary="Variables of a project", responses=problems(503))
@needs(Scope.ADMIN)
def get_project_env(project: ProjectName, parts: Parts) -> EnvironmentView:
    """The values of secrets are not shown."""
    return EnvironmentView.of(project, parts[ProjectEnvironment].get(project))


@router.put("/env", summary="Set all variables of a project", responses=problems(409, 503))
@needs(Scope.ADMIN)
def replace_project_env(project: ProjectName, body: EnvironmentReplace, parts: Parts) -> EnvironmentView:
    """Attempts that begin after the answer find these in their environment, and no others. The project need not be
    deployed yet.
    """
    wanted = {name: NewVariable(one.value, one.secret) for name, one in body.variables.items()}
    return EnvironmentView.of(project, parts[ProjectEnvironment].replace(project, wanted))


@router.put("/env/{variable}", summary="Set one variable of a project", responses=problems(409, 503))
@needs(Scope.ADMIN)
def set_project_variable(
    project: ProjectName, variable: VariableName, body: VariableReplace, parts: Parts
) -> EnvironmentView:
    """Sets one variable. All others stay as they are."""
    config = parts[ProjectEnvironment].set(project, variable, body.value, secret=body.secret)
    return EnvironmentView.of(project, config)


@router.delete("/env/{variable}", summary="Remove a variable of a project", responses=problems(404, 409, 503))
@needs(Scope.ADMIN)
def unset_project_variable(project: ProjectName, variable: VariableName, parts: Parts) -> EnvironmentView:
    """Removes the variable. Running attempts keep it."""
    return EnvironmentView.of(project, parts[ProjectEnvironment].unset(project, variable))


@router.get("/settings", summary="Settings of a project", responses=problems(503))
@needs(Scope.ADMIN)
def get_project_settings(project: ProjectName, parts: Parts) -> SettingsView:
    """The settings that were set with `PUT`. Those in the project's code are not known here."""
    return SettingsView.of(project, parts[ProjectEnvironment].get(project))


@router.put("/settings", summary="Set the settings of a project", responses=problems(409, 503))
@needs(Scope.ADMIN)
def replace_project_settings(project: ProjectName, body: SettingsReplace, parts: Parts) -> SettingsView:
    """The settings apply to attempts that begin after the answer. A setting that would bypass the platform's limits,
    its address rule or its log is refused by name.
    """
    config = parts[ProjectEnvironment].set_settings(project, body.settings, body.open, body.open_env)
    return SettingsView.of(project, config)
