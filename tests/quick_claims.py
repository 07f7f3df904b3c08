"""A worker of ours whose claims last for seconds: `celery -A quick_claims worker`, in this folder."""

from __future__ import annotations

import os

from gateway.services import dispatch
from gateway.settings import Settings
from gateway.worker.app import create_celery

dispatch.CLAIM_SECONDS = int(os.environ["CLAIM_SECONDS"])

app = create_celery(Settings.load())
