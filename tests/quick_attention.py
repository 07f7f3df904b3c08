"""A worker of ours that waits for a node's answer for seconds: `celery -A quick_attention worker`, in this folder."""

from __future__ import annotations

import os

from gateway.settings import Settings
from gateway.storage import job_queue
from gateway.worker.app import create_celery

job_queue.ATTEND_SECONDS = int(os.environ["ATTEND_SECONDS"])

app = create_celery(Settings.load())
