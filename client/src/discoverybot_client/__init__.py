"""Crawl with a DiscoveryBot platform: `Client` blocks, `AsyncClient` does not, and both do the same."""

from __future__ import annotations

from discoverybot_client._async.client import Client as AsyncClient
from discoverybot_client._async.jobs import Job as AsyncJob
from discoverybot_client._async.jobs import JobDetail as AsyncJobDetail
from discoverybot_client._async.platform import Key as AsyncKey
from discoverybot_client._async.platform import Keys as AsyncKeys
from discoverybot_client._async.platform import Node as AsyncNode
from discoverybot_client._async.platform import Nodes as AsyncNodes
from discoverybot_client._async.platform import Project as AsyncProject
from discoverybot_client._async.platform import Projects as AsyncProjects
from discoverybot_client._async.platform import SavedView as AsyncSavedView
from discoverybot_client._async.platform import SavedViews as AsyncSavedViews
from discoverybot_client._async.platform import Site as AsyncSite
from discoverybot_client._async.platform import Sites as AsyncSites
from discoverybot_client._async.platform import Target as AsyncTarget
from discoverybot_client._async.platform import Targets as AsyncTargets
from discoverybot_client._async.resources import Changes as AsyncChanges
from discoverybot_client._async.resources import Dataset as AsyncDataset
from discoverybot_client._async.resources import DatasetRun as AsyncDatasetRun
from discoverybot_client._async.resources import Datasets as AsyncDatasets
from discoverybot_client._async.resources import DeadLetter as AsyncDeadLetter
from discoverybot_client._async.resources import DeadLetters as AsyncDeadLetters
from discoverybot_client._async.resources import Schedule as AsyncSchedule
from discoverybot_client._async.resources import Schedules as AsyncSchedules
from discoverybot_client._async.signals import Alert as AsyncAlert
from discoverybot_client._async.signals import AlertRule as AsyncAlertRule
from discoverybot_client._async.signals import AlertRules as AsyncAlertRules
from discoverybot_client._async.signals import Alerts as AsyncAlerts
from discoverybot_client._async.signals import Endpoint as AsyncEndpoint
from discoverybot_client._async.signals import Endpoints as AsyncEndpoints
from discoverybot_client._async.signals import ErrorGroup as AsyncErrorGroup
from discoverybot_client._async.signals import ErrorGroups as AsyncErrorGroups
from discoverybot_client._sync.client import Client
from discoverybot_client._sync.jobs import Job, JobDetail
from discoverybot_client._sync.platform import (
    Key,
    Keys,
    Node,
    Nodes,
    Project,
    Projects,
    SavedView,
    SavedViews,
    Site,
    Sites,
    Target,
    Targets,
)
from discoverybot_client._sync.resources import (
    Changes,
    Dataset,
    DatasetRun,
    Datasets,
    DeadLetter,
    DeadLetters,
    Schedule,
    Schedules,
)
from discoverybot_client._sync.signals import (
    Alert,
    AlertRule,
    AlertRules,
    Alerts,
    Endpoint,
    Endpoints,
    ErrorGroup,
    ErrorGroups,
)
from discoverybot_client._version import __version__
from discoverybot_client.answers import (
    AuditEntry,
    BulkReport,
    Change,
    ComingRun,
    CrawlPreview,
    DatasetHealth,
    DatasetItem,
    DeliveryRecord,
    Dependencies,
    Deployment,
    FieldCoverage,
    FileRecord,
    Health,
    Invitation,
    ItemDifferences,
    JobErrorRecord,
    JobProgress,
    JobsHealth,
    JobSummary,
    Moment,
    Occurrence,
    ProjectSettings,
    QueueStatus,
    RepairBundle,
    RequestRecord,
    RunDays,
    SchedulerStatus,
    Session,
    SpiderFields,
    SpiderRecord,
    Variable,
    VersionRecord,
)
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
    NotAJobError,
    NotFoundError,
    RequestTimeoutError,
    TooManyRequestsError,
    UnavailableError,
    WaitTimeoutError,
    WebhookError,
)
from discoverybot_client.records import Event, LogLine, Record
from discoverybot_client.rules import Retries
from discoverybot_client.webhooks import verify

__all__ = [
    "Alert",
    "AlertRule",
    "AlertRules",
    "Alerts",
    "ApiError",
    "AsyncAlert",
    "AsyncAlertRule",
    "AsyncAlertRules",
    "AsyncAlerts",
    "AsyncChanges",
    "AsyncClient",
    "AsyncCrawlFailedError",
    "AsyncDataset",
    "AsyncDatasetRun",
    "AsyncDatasets",
    "AsyncDeadLetter",
    "AsyncDeadLetters",
    "AsyncEndpoint",
    "AsyncEndpoints",
    "AsyncErrorGroup",
    "AsyncErrorGroups",
    "AsyncJob",
    "AsyncJobDetail",
    "AsyncKey",
    "AsyncKeys",
    "AsyncNode",
    "AsyncNodes",
    "AsyncProject",
    "AsyncProjects",
    "AsyncSavedView",
    "AsyncSavedViews",
    "AsyncSchedule",
    "AsyncSchedules",
    "AsyncSite",
    "AsyncSites",
    "AsyncTarget",
    "AsyncTargets",
    "AsyncWaitTimeoutError",
    "AuditEntry",
    "BulkReport",
    "Change",
    "Changes",
    "Client",
    "ComingRun",
    "ConflictError",
    "CrawlFailedError",
    "CrawlPreview",
    "CursorExpiredError",
    "Dataset",
    "DatasetHealth",
    "DatasetItem",
    "DatasetRun",
    "Datasets",
    "DeadLetter",
    "DeadLetters",
    "DeliveryRecord",
    "Dependencies",
    "DeployError",
    "Deployment",
    "DiscoveryBotError",
    "Endpoint",
    "Endpoints",
    "ErrorGroup",
    "ErrorGroups",
    "Event",
    "FieldCoverage",
    "FileRecord",
    "ForbiddenError",
    "GatewayUnreachableError",
    "Health",
    "InvalidRequestError",
    "Invitation",
    "ItemDifferences",
    "Job",
    "JobDetail",
    "JobErrorRecord",
    "JobProgress",
    "JobSummary",
    "JobsHealth",
    "Key",
    "KeyRefusedError",
    "Keys",
    "LogLine",
    "Moment",
    "NoGatewayError",
    "Node",
    "Nodes",
    "NotAJobError",
    "NotFoundError",
    "Occurrence",
    "Project",
    "ProjectSettings",
    "Projects",
    "QueueStatus",
    "Record",
    "RepairBundle",
    "RequestRecord",
    "RequestTimeoutError",
    "Retries",
    "RunDays",
    "SavedView",
    "SavedViews",
    "Schedule",
    "SchedulerStatus",
    "Schedules",
    "Session",
    "Site",
    "Sites",
    "SpiderFields",
    "SpiderRecord",
    "Target",
    "Targets",
    "TooManyRequestsError",
    "UnavailableError",
    "Variable",
    "VersionRecord",
    "WaitTimeoutError",
    "WebhookError",
    "__version__",
    "verify",
]
