"""The Celery application for `celery -A celery_app worker` and `celery -A celery_app beat`. No more flags
are needed.
"""

from __future__ import annotations

import sys

from gateway.errors import SettingsError
from gateway.settings import Settings
from gateway.worker.app import create_celery

try:
    app = create_celery(Settings.load())
except SettingsError as error:
    # Celery would bury the message in a traceback
    sys.stderr.write(f"celery: {error}\n")
    sys.exit(2)
