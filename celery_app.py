"""The application for `celery -A celery_app worker` and `celery -A celery_app beat`; they need no further flags."""

from __future__ import annotations

from gateway.settings import Settings
from gateway.worker.app import create_celery

app = create_celery(Settings.load())
