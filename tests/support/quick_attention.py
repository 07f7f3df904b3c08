"""A worker of ours that waits for a node's answer only for seconds: `celery -A quick_attention worker`, in this
folder.
"""

from __future__ import annotations

import os

from gateway.jobs import queue
from gateway.settings import Settings
from gateway.worker.app import create_celery

queue.ATTEND_SECONDS = int(os.environ["ATTEND_SECONDS"])

app = create_celery(Settings.load())
