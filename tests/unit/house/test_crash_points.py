"""Every write that changes state has a crash point, so that the fault tests can kill a process at all of them."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from textwrap import dedent

import pytest
from unit.house.sources import ROOT, python_files, relative
from unit.house.state_changes import crash_point_names, generators_with_crash_points, uncovered_writes

WRITING_FOLDERS = (
    *(
        f"gateway/{room}"
        for room in (
            "stores",
            "nodes",
            "projects",
            "jobs",
            "dispatch",
            "logs",
            "items",
            "files",
            "exports",
            "schedules",
            "error_groups",
        )
    ),
    *(f"gateway/{room}" for room in ("sites", "access", "signals", "retention", "status", "tailer")),
    "crawler/node",
)
#: Where whatever is written to is Redis.
REDIS_FILES = {
    *("gateway/stores/redis.py", "gateway/stores/site_rate_limit.py", "gateway/access/request_counter.py"),
    *("gateway/jobs/dedupe.py", "gateway/jobs/messages.py", "gateway/logs/store.py"),
}
#: `file function` → why a process that dies there leaves nothing that anybody has to mend.
NEEDS_NONE = {
    "gateway/dispatch/egg_delivery.py EggDelivery._send": "a temporary file of its own",
    "gateway/jobs/attempts.py AttemptStore.record_files": "a step of whoever asks for it, and has one",
    "gateway/jobs/messages.py CeleryWaker.close": "only threads of the process wait for it",
    "gateway/jobs/queue.py JobDocuments.find_one_and_update": "a step of whoever asks for it, and has one",
    **dict.fromkeys(
        (
            f"gateway/stores/mongo.py Repeating.{name}"
            for name in (
                *("insert_one", "insert_one.again", "insert_many", "change_one.write", "update_one", "update_many"),
                *("delete_many", "delete_of_jobs", "find_one_and_update"),
            )
        ),
        "a step of whoever asks for it, and has one",
    ),
    "gateway/sites/edits.py SiteService.edit": "asks the store, which has one",
    "gateway/sites/edits.py TargetService.edit": "asks the store, which has one",
    "crawler/node/accounts.py discard": "what is left is found by the next start, or the next sweep",
    "crawler/node/venv_builder.py _build": "a folder of its own, which the next start removes",
    "crawler/node/venv_builder.py Uv.resolve": "the same folder",
    "crawler/node/venv_builder.py Uv._uv": "the same folder",
    "crawler/node/renamed.py renamed_runtime": "a folder of its own, which the next start removes",
    "crawler/node/venv_queue.py Venvs._build": "a file of its own, which the next start removes",
    "crawler/node/venv_queue.py Venvs.start": "made anew at each start",
}


def test_every_write_has_a_crash_point() -> None:
    writes = {
        f"{relative(path)} {write.function}": write
        for path in python_files(*WRITING_FOLDERS)
        for write in uncovered_writes(path.read_text("utf-8"), receivers_are_redis=relative(path) in REDIS_FILES)
    }
    assert not [write for place, write in writes.items() if place not in NEEDS_NONE]


def test_no_two_writes_share_a_name() -> None:
    names = Counter(name for path in _packages() for name in crash_point_names(path.read_text(encoding="utf-8")))
    assert names
    assert not [name for name, count in names.items() if count > 1]


def test_a_crash_point_surrounds_the_write_itself() -> None:
    assert not [
        f"{relative(path)} {name}"
        for path in _packages()
        for name in generators_with_crash_points(path.read_text(encoding="utf-8"))
    ]


def test_no_exception_has_outlived_its_reason() -> None:
    uncovered = {
        f"{relative(path)} {write.function}"
        for path in python_files(*WRITING_FOLDERS)
        for write in uncovered_writes(
            path.read_text(encoding="utf-8"), receivers_are_redis=relative(path) in REDIS_FILES
        )
    }
    assert set(NEEDS_NONE) <= uncovered


def test_where_a_crash_point_is_tried_elsewhere_there_is_such_a_test() -> None:
    source = (ROOT / "tests/faults/test_crash_points.py").read_text(encoding="utf-8")
    named = set(re.findall(r": ([a-z_0-9/]+/test_[a-z_0-9]+\.py)\"", source))
    assert "crawler/test_site_rate.py" in named
    folders = (ROOT / "tests/integration", ROOT / "tests")
    assert not [path for path in named if not any((folder / path).is_file() for folder in folders)]


def _packages() -> list[Path]:
    return python_files("gateway", "crawler")


UNCOVERED = {
    "a document": """
        def finish(self):
            self._jobs.update_one({}, {})
        """,
    "a claim whose result is used": """
        def claim(self):
            return _job(self._jobs.find_one_and_update({}, {}))
        """,
    "a key": """
        def set(self):
            self._redis.set("key", "value")
        """,
    "a pipeline": """
        async def publish(self):
            async with self._redis.pipeline() as pipeline:
                await pipeline.execute()
        """,
    "a script": """
        class Dedupe:
            def __init__(self, client):
                self._confirm = client.register_script("")

            def confirm(self):
                self._confirm(keys=[])
        """,
    "a file made exclusively": """
        def start(path):
            write_exclusively(path, b"")
        """,
    "a link": """
        def start(path):
            os.link(path, path)
        """,
    "a folder removed": """
        def forget(path):
            shutil.rmtree(path)
        """,
    "a path replaced": """
        def swap(path):
            path.replace(path)
        """,
    "a file opened for writing": """
        def spool(path):
            path.open("xb")
        """,
    "a write inside a lambda": """
        def later(self):
            return lambda: self._jobs.delete_one({})
        """,
    "a private function that anybody calls": """
        def finish(self):
            self._change()

        @state_change("jobs.cancel")
        def cancel(self):
            self._change()

        def _change(self):
            self._jobs.update_one({}, {})
        """,
    "a private function that only calls itself": """
        def _change(self):
            self._jobs.update_one({}, {})
            self._change()
        """,
    "a write when the module is imported": """
        jobs.insert_one({})
        """,
}

COVERED = {
    "a marked function": """
        @state_change("jobs.finish")
        def finish(self):
            self._jobs.update_one({}, {})
        """,
    "what stands inside a marked function": """
        @crash_points.state_change("jobs.finish")
        def finish(self):
            def change():
                self._jobs.update_one({}, {})
            change()
        """,
    "a private function that only marked ones call": """
        @state_change("jobs.finish")
        def finish(self):
            self._change()

        def _change(self):
            self._really_change()

        def _really_change(self):
            self._jobs.update_one({}, {})
        """,
    "no write at all": """
        def look(self, event, text):
            event.set()
            self._jobs.find_one({})
            text.replace("a", "b")
            path.open("rb")
            open("w")
        """,
}


@pytest.mark.parametrize("sample", UNCOVERED.values(), ids=UNCOVERED)
def test_a_write_without_one_is_found(sample: str) -> None:
    assert len(uncovered_writes(dedent(sample))) == 1


@pytest.mark.parametrize("sample", COVERED.values(), ids=COVERED)
def test_a_covered_write_is_not_complained_about(sample: str) -> None:
    assert not uncovered_writes(dedent(sample))


def test_a_marked_generator_is_found() -> None:
    sample = '@state_change("items.ship")\ndef ship(self):\n    yield self._items.insert_one({})\n'
    assert generators_with_crash_points(sample) == ["ship"]
