"""The error tree. It does not depend on HTTP: only `gateway/web/errors.py` maps errors to answers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any


class DiscoveryBotError(Exception):
    """Base of all errors that the platform raises on purpose, when it refuses something or fails.

    `code` is for programs, and never changes; it is made from the class's name. The message is for people. `detail`
    can be serialized as JSON.
    """

    code = "internal_error"

    def __init_subclass__(cls) -> None:
        """Set the code of a subclass that does not set its own: for `JobExistsError` it is `job_exists`."""
        super().__init_subclass__()
        if "code" not in vars(cls):
            cls.code = re.sub(r"\B(?=[A-Z])", "_", cls.__name__.removesuffix("Error")).lower()

    def __init__(self, message: str, *, detail: Any = None) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail


class InvalidRequestError(DiscoveryBotError):
    """The request cannot be carried out as asked. `field` names its faulty part."""

    def __init__(self, field: str, message: str, *, detail: Any = None) -> None:
        super().__init__(f"{field}: {message}", detail=detail if detail is not None else {"field": field})
        self.field = field
        #: What is wrong with the field.
        self.problem = message


class ForbiddenAddressError(InvalidRequestError):
    """A URL that must not be fetched: its address is private, loopback, link-local, a metadata service, or
    similar.
    """


class TooManyRowsError(InvalidRequestError):
    """A sheet of a spreadsheet cannot have this many rows."""

    def __init__(self, most: int) -> None:
        super().__init__(
            "format",
            f"a sheet can have {most:,} rows, and there are more; use format=csv or format=parquet",
            detail={"field": "format", "limit": most},
        )


class TooManyColumnsError(InvalidRequestError):
    """A table cannot have this many columns."""

    def __init__(self, most: int) -> None:
        super().__init__(
            "fields",
            f"a table can have {most:,} columns, and these rows have more fields; name some, or use format=jsonl",
            detail={"field": "fields", "limit": most},
        )


class TableTooLargeError(InvalidRequestError):
    """A file that has to be made before it is sent would take more disk space than it may."""

    def __init__(self, most: int) -> None:
        super().__init__(
            "format",
            f"the rows have more than {most:,} bytes (TABLE_MAX_BYTES); use format=csv or format=jsonl",
            detail={"field": "format", "limit": most},
        )


class ExtraMissingError(InvalidRequestError):
    """The request needs an optional package that is not installed."""

    def __init__(self, field: str, what: str, extra: str) -> None:
        super().__init__(
            field,
            f"{what} needs `pip install 'discoverybot[{extra}]'` where the gateway and workers run",
            detail={"field": field, "extra": extra},
        )


class ExportPlaceError(InvalidRequestError):
    """Exports may not be written to this place."""


class UnauthenticatedError(DiscoveryBotError):
    """There are API keys, and the request has none."""

    code = "key_required"


class WrongKeyError(UnauthenticatedError):
    """The request's key does not exist, or is not valid (any more). The caller does not learn which of
    these it is.
    """

    code = "key_invalid"


class ForbiddenError(DiscoveryBotError):
    """The caller may not do this."""


class ForgedRequestError(ForbiddenError):
    """A signed-in browser sent this request, but apparently not from a page of ours."""

    code = "csrf_token_wrong"


class ScopeMissingError(ForbiddenError):
    """The caller's key does not have the scope that the request needs."""

    def __init__(self, scope: str, field: str | None = None) -> None:
        """`field`: the field of the body for which the scope is needed, if the rest of the request does not
        need it.
        """
        what, named = (f"{field}: this", {"field": field}) if field else ("this", {})
        super().__init__(f"{what} needs a key with the scope '{scope}'", detail={"scope": scope, **named})


class ProjectsOnlyError(ForbiddenError):
    """The caller's key may only read some projects, and what was asked for belongs to no project."""

    def __init__(self, projects: Sequence[str]) -> None:
        named = f"the project{'s' if len(projects) > 1 else ''} {', '.join(map(repr, projects))}"
        message = f"this key can only read {named}, and this is not part of a project"
        super().__init__(message, detail={"projects": list(projects)})


class NotYourUserError(ForbiddenError):
    """The key may not act for this user. A key may only act for its own user."""

    def __init__(self, user_id: str) -> None:
        super().__init__(f"user_id: this key may not act for {user_id!r}", detail={"field": "user_id"})


class UnreadableError(DiscoveryBotError):
    """This version cannot read the document with this id."""

    def __init__(self, collection: str, identity: object, problem: str) -> None:
        super().__init__(
            f"{identity!r} in {collection!r} cannot be read: {problem}; `discoverybot doctor` says what to do",
            detail={"collection": collection, "id": str(identity), "problem": problem},
        )


class NewerStoresError(DiscoveryBotError):
    """The stores contain documents in a format that this version does not understand."""

    def __init__(self, where: str, stored: int, understood: int, version: str) -> None:
        super().__init__(
            f"MONGO_URI: a newer version has written to {where}: documents there have format {stored}, and {version} "
            f"understands {understood} at most. Start the newer version; docs/how-to/upgrade.md says how to go back"
        )


class NotFoundError(DiscoveryBotError):
    """There is nothing with this id or name, or it belongs to another user."""


class NoSuchError(NotFoundError):
    """There is no object with this id or name. The code says what kind of object was asked for."""

    code = NotFoundError.code

    def __init__(self, name: str) -> None:
        what = self.code.removesuffix("_not_found").replace("_", " ")
        super().__init__(f"there is no {what} {name!r}")


class JobNotFoundError(NoSuchError):
    """No job has this id."""


class RunNotFoundError(NoSuchError):
    """No run of a site has this id."""


class DeadLetterNotFoundError(NoSuchError):
    """No job with this id is a dead letter (any more)."""


class NodeNotFoundError(NoSuchError):
    """No crawl node has registered itself with this name."""


class SiteNotFoundError(NoSuchError):
    """No site has this name."""


class TargetNotFoundError(NoSuchError):
    """No target has this id or number."""


class KeyNotFoundError(NoSuchError):
    """No key has this id."""


class ProjectNotFoundError(NotFoundError):
    """No project with this name was deployed."""

    def __init__(self, project: str) -> None:
        super().__init__(f"there is no project {project!r}")


class VersionNotFoundError(NotFoundError):
    """The project has no such version."""

    def __init__(self, project: str, version: str) -> None:
        super().__init__(f"there is no version {version!r} of project {project!r}")


class VariableNotFoundError(NotFoundError):
    """The project has no such variable."""

    code = "variable_not_found"

    def __init__(self, project: str, name: str) -> None:
        super().__init__(f"project {project!r} has no variable {name!r}")


class WebhookSecretNotFoundError(NotFoundError):
    """The user has no secret, so calls of its webhooks are not signed."""

    code = "webhook_secret_not_found"

    def __init__(self, user_id: str) -> None:
        super().__init__(
            f"user {user_id!r} has no webhook secret: make one with `discoverybot webhook-secret --new`, or with "
            "POST /webhooks/secret"
        )


class EndpointNotFoundError(NoSuchError):
    """The user has no endpoint with this id."""


class ViewNotFoundError(NoSuchError):
    """No view has this id, or it is another user's and not shared."""


class AlertRuleNotFoundError(NoSuchError):
    """The user has no rule with this id."""


class AlertNotFoundError(NoSuchError):
    """The user has no alert with this id."""


class ErrorGroupNotFoundError(NoSuchError):
    """The user has no group of errors with this id."""


class DeliveryNotFoundError(NoSuchError):
    """The endpoint, or the job, has no delivery with this id."""


class WrittenFileNotFoundError(NotFoundError):
    """The job has no file with this name."""

    code = "file_not_found"

    def __init__(self, job_id: str, name: str) -> None:
        super().__init__(f"job {job_id!r} has no file {name!r}")


class FileNotStoredError(NotFoundError):
    """The file is listed, but the file store does not have it: it was removed there, or stored elsewhere."""

    def __init__(self, place: str) -> None:
        super().__init__(
            f"the file store has no {place!r}: it was removed there, or FILES_URL is not the same for all processes"
        )


class ScheduleNotFoundError(NoSuchError):
    """No schedule has this id."""


class DatasetNotFoundError(NoSuchError):
    """The user has no dataset with this name."""


class DatasetRunNotFoundError(NoSuchError):
    """The dataset has no run of this job."""


class CursorExpiredError(DiscoveryBotError):
    """Changes after this cursor have been deleted. The detail says from where to continue."""


class ConflictError(DiscoveryBotError):
    """The present state of the job, schedule or other object does not allow the request."""


class CountChangedError(ConflictError):
    """The number of matching jobs is no longer the one that the caller expects."""

    def __init__(self, expected: int, matched: int) -> None:
        super().__init__(
            f"{matched} jobs match now, not {expected}: nothing was done; ask again with the new number",
            detail={"field": "expect", "expect": expected, "matched": matched},
        )


class RunAgainError(ConflictError):
    """The job was already run again, and the request asks to do this only once."""

    def __init__(self, successor: str) -> None:
        super().__init__(f"it was already run again, as job {successor}", detail={"job_id": successor})
        self.successor = successor


class JobExistsError(ConflictError):
    """A job with this id exists already."""


class ScheduleExistsError(ConflictError):
    """A schedule with this id exists already."""


class ScheduleChangedError(ConflictError):
    """The schedule has another revision than the request names."""


class ScheduleEndedError(ConflictError):
    """The schedule has ended, and cannot be changed any more."""


class LiveTwinError(ConflictError):
    """There is already a live job, or a live schedule, with the same `live_key`, that is, the same fingerprint."""


class IdempotencyConflictError(ConflictError):
    """The idempotency key was used before, for another request."""

    code = "idempotency_key_reused"


class RunGoesOnError(DiscoveryBotError):
    """The run has not ended within the time that a caller may wait. It continues."""


class SiteExistsError(ConflictError):
    """A site with this name exists already."""


class SiteInUseError(ConflictError):
    """The site still has targets."""


class SiteDisabledError(ConflictError):
    """The site is disabled, so it cannot be run."""


class UnavailableError(DiscoveryBotError):
    """MongoDB cannot be reached, or is too slow. Nothing was accepted; the request can be repeated."""


class FileStoreAwayError(UnavailableError):
    """The file store cannot be reached, or refuses the request."""

    def __init__(self, url: str, error: Exception) -> None:
        # the message's other lines are for programmers
        reason = str(error).partition("\n")[0] or type(error).__name__
        super().__init__(f"the file store at {url} is not available: {reason}")


class NoRoomError(UnavailableError):
    """The disk has no space for a file that is being made."""

    def __init__(self, folder: str) -> None:
        super().__init__(f"there is not enough disk space in {folder} to make this file; nothing was written")


class SecretsKeyError(UnavailableError):
    """A secret cannot be encrypted or decrypted here, because this process does not have the right key."""

    code = "secrets_key"


class StartingError(UnavailableError):
    """No crawl node has published its spiders yet, so it is not known what can be crawled; the request can be
    repeated.
    """

    def __init__(self) -> None:
        super().__init__("no crawl node has published its spiders yet; nothing was accepted, ask again in a moment")


class TooManyError(DiscoveryBotError):
    """There are too many requests or crawls now. Nothing was accepted; the request can be repeated after
    `retry_after` seconds.
    """

    code = "too_many_requests"

    def __init__(self, message: str, retry_after: int, *, detail: Any = None) -> None:
        super().__init__(message, detail=detail)
        self.retry_after = retry_after


class QueueFullError(TooManyError):
    """The queue is full: as many crawls wait as the limit allows."""

    def __init__(self, waiting: int, limit: int, retry_after: int) -> None:
        message = (
            f"the queue is full: {waiting} crawls wait, and the limit is {limit} (CRAWL_QUEUE_MAX); "
            f"this request was not accepted: ask again in {retry_after} seconds"
        )
        super().__init__(message, retry_after, detail={"limit": limit, "waiting": waiting})


class UserQuotaError(TooManyError):
    """The user has reached a limit. `name` is the name of what `count` counts; `reason` is the message without
    advice.
    """

    def __init__(self, reason: str, name: str, count: int, limit: int, retry_after: int) -> None:
        message = f"{reason}; this request was not accepted: cancel some, or ask again in {retry_after} seconds"
        super().__init__(message, retry_after, detail={"limit": limit, name: count})
        self.reason = reason


class BudgetSpentError(TooManyError):
    """The key's budget for today is not enough for the crawl."""

    code = "budget_spent"

    def __init__(self, reason: str, retry_after: int, *, detail: Any = None) -> None:
        super().__init__(f"{reason}; ask again in {retry_after} seconds", retry_after, detail=detail)
        #: The message without advice.
        self.reason = reason


class NodeError(DiscoveryBotError):
    """A crawl node did not do as asked."""

    code = "node_error"
    #: Whether the node is at fault: then it would also fail other requests, and another node may do this one.
    is_nodes_fault = True


class NodeRefusedError(NodeError):
    """The node has refused the call, so this call has certainly not started the job."""

    def __init__(self, message: str, *, is_nodes_fault: bool = False, reason: str | None = None) -> None:
        super().__init__(message)
        self.is_nodes_fault = is_nodes_fault
        #: The node's code for the refusal. A node of another version may send a code that is unknown here.
        self.reason = reason


class StillInstallingError(NodeRefusedError):
    """The node is still installing an egg's requirements. If the egg is sent again later, the node answers with the
    result.
    """

    code = "still_installing"

    def __init__(self, message: str) -> None:
        super().__init__(message, is_nodes_fault=True)


class NodeShutError(NodeRefusedError):
    """The node refuses our password, or the host name under which it is called. It has not looked at the request."""

    def __init__(self, message: str) -> None:
        super().__init__(message, is_nodes_fault=True)


class NameTakenError(NodeError):
    """Another machine has registered itself with this node's name. Its last heartbeat was at `heartbeat_at`."""

    code = "node_name_taken"

    def __init__(self, node: str, url: str, heartbeat_at: datetime) -> None:
        super().__init__(
            f"NODE_NAME: another machine, at {url}, calls itself {node!r}; give this one a name of its own. "
            "If that machine is gone for good, this one takes its place after NODE_DEAD_AFTER"
        )
        self.heartbeat_at = heartbeat_at


class NodeUnreachableError(NodeError):
    """The node did not answer. If the request `may_have_arrived`, the node may have accepted the job, so the job must
    be posted to the same node again.
    """

    def __init__(self, message: str, *, may_have_arrived: bool = True) -> None:
        super().__init__(message)
        self.may_have_arrived = may_have_arrived


class NeverTakenError(NodeUnreachableError):
    """The node did not answer a post. It has then said that it has not accepted the job, and never will."""

    def __init__(self, message: str) -> None:
        super().__init__(message, may_have_arrived=False)


class SettingsError(ValueError):
    """A setting is invalid or unknown. The message names it."""
