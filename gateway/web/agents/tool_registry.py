"""The registry of tools: each is a function of its arguments, with a model of these and of its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import cleandoc
from typing import Any, NamedTuple, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict

from gateway.web.inner_calls import InnerCalls

Arguments = TypeVar("Arguments", bound=BaseModel)
Answer = TypeVar("Answer", bound=BaseModel)
Work = Callable[[InnerCalls, Arguments], Awaitable[Answer]]


class ToolArguments(BaseModel):
    """Refuses unknown arguments, so that a model which invents one gets an error."""

    model_config = ConfigDict(extra="forbid")


class AgentTool(NamedTuple):
    name: str
    title: str
    description: str
    arguments: type[BaseModel]
    answer: type[BaseModel]
    work: Work[Any, Any]
    #: Whether the tool changes nothing.
    reads: bool
    #: Whether the tool ends something, such as a running crawl.
    ends: bool
    #: Whether a second call with the same arguments changes nothing more.
    is_repeatable: bool


#: In the order in which they are listed.
TOOLS: dict[str, AgentTool] = {}


def tool(
    title: str, *, reads: bool = False, ends: bool = False, repeatable: bool = False
) -> Callable[[Work[Arguments, Answer]], Work[Arguments, Answer]]:
    """Decorator of a tool's function, whose docstring describes it to the model."""

    def add(work: Work[Arguments, Answer]) -> Work[Arguments, Answer]:
        name, types = getattr(work, "__name__", ""), get_type_hints(work)
        TOOLS[name] = AgentTool(
            name=name,
            title=title,
            description=cleandoc(work.__doc__ or ""),
            arguments=types["args"],
            answer=types["return"],
            work=work,
            reads=reads,
            ends=ends,
            is_repeatable=reads or repeatable,
        )
        return work

    return add
