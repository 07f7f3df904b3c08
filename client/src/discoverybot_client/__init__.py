"""Crawl with a DiscoveryBot platform: `Client` blocks, `AsyncClient` does not, and both do the same."""

from __future__ import annotations

from discoverybot_client._async.client import Client as AsyncClient
from discoverybot_client._async.jobs import Job as AsyncJob
from discoverybot_client._async.resources import Changes as AsyncChanges
from discoverybot_client._async.resources import Dataset as AsyncDataset
from discoverybot_client._async.resources import Endpoint as AsyncEndpoint
from discoverybot_client._async.resources import Schedule as AsyncSchedule
from discoverybot_client._sync.client import Client
from discoverybot_client._sync.jobs import Job
from discoverybot_client._sync.resources import Changes, Dataset, Endpoint, Schedule
from discoverybot_client.deploying import DeployError
from discoverybot_client.errors import (
    ApiError,
    AsyncCrawlFailedError,
    AsyncWaitTimeoutError,
    ConflictError,
    CrawlFailedError,
    CursorExpiredError,
    DiscoveryBotError,
    ForbiddenError,
    GatewayUnreachableError,
    InvalidRequestError,
    KeyRefusedError,
    NoGatewayError,
    NotFoundError,
    TooManyRequestsError,
    UnavailableError,
    WaitTimeoutError,
    WebhookError,
)
from discoverybot_client.records import (
    Change,
    DatasetItem,
    DeliveryRecord,
    Event,
    FileRecord,
    LogLine,
    ProjectRecord,
    Record,
    SpiderRecord,
)
from discoverybot_client.rules import Retries
from discoverybot_client.webhooks import verify

__all__ = [
    "ApiError",
    "AsyncChanges",
    "AsyncClient",
    "AsyncCrawlFailedError",
    "AsyncDataset",
    "AsyncEndpoint",
    "AsyncJob",
    "AsyncSchedule",
    "AsyncWaitTimeoutError",
    "Change",
    "Changes",
    "Client",
    "ConflictError",
    "CrawlFailedError",
    "CursorExpiredError",
    "Dataset",
    "DatasetItem",
    "DeliveryRecord",
    "DeployError",
    "DiscoveryBotError",
    "Endpoint",
    "Event",
    "FileRecord",
    "ForbiddenError",
    "GatewayUnreachableError",
    "InvalidRequestError",
    "Job",
    "KeyRefusedError",
    "LogLine",
    "NoGatewayError",
    "NotFoundError",
    "ProjectRecord",
    "Record",
    "Retries",
    "Schedule",
    "SpiderRecord",
    "TooManyRequestsError",
    "UnavailableError",
    "WaitTimeoutError",
    "WebhookError",
    "verify",
]
