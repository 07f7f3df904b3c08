"""The commands of `redis-cli` that the page about several machines uses."""

from __future__ import annotations

import os
import sys

import redis

with redis.Redis(password=os.environ["REDISCLI_AUTH"], decode_responses=True) as client:
    sys.stdout.write(f"{client.execute_command(*sys.argv[1:])}\n")
