"""Every process is killed at every place where it changes state, and at random moments, under one load.

The verifier is the crawled site: what its access log shows is what was really fetched.
"""

from __future__ import annotations

import random
import re
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import redis
from fault_table import record
from forms import FULL, full_or_short
from sites.server import Site, html
from stack import FINAL, ROOT, Stack, running_stack, wait_until

CRAWLS = full_or_short(50, 6)
RANDOM_KILLS = full_or_short(20, 2)
#: Writes at which somebody dies, in short; in full at each.
WRITES = 10
#: How many of these points may never be reached, and for how many seconds they are waited for once all crawls have
#: ended: some come after a certain death alone, such as that of a node that was just asked, and in short few die.
LEFT, PATIENCE = full_or_short((0, 300), (4, 30))
#: What comes after a death alone, by the crash point that leads to it.
LED_TO_BY = {"jobs.take_over": "jobs.assign.after", "node.catalog": "node.queue.after"}
VICTIMS = ("gateway", "worker", "tailer", "beat", "scrapyd")

#: Crash points that this load cannot reach, and where they are tried instead: in these files of `tests/integration`,
#: or of `tests` (`tests/unit/house` holds that they are there).
ELSEWHERE = {
    "jobs.release": "needs a node that refuses: services/test_dispatch.py",
    "tailer.finish_removals": "needs folders that take long to remove: tailer/test_hostile_files.py",
    "jobs.use_up": "needs a worker that died between its holds and its assignment: services/test_lease_kills.py",
    "jobs.requeue": "needs a back-off that is over: services/test_lease_kills.py",
    "jobs.attend_later": "needs a job that is cancelled while it is handed over: services/test_dispatch.py",
    "jobs.begin_anew": "needs a full disk: services/test_pausing.py",
    "jobs.attended": "needs a time that was set for nothing: services/test_completion.py",
    "holds.give_back": "needs two workers that want the same: services/test_exclusion.py",
    "holds.set_aside": "needs a document that cannot be read: storage/test_documents.py",
    "holds.forget": "needs jobs that exclude each other: services/test_lease_kills.py",
    "holds.close": "one write that another follows, which is asked for again: services/test_node_draining.py",
    "holds.open": "needs a node that was drained: services/test_node_draining.py",
    "nodes.try": "needs a node that has failed: services/test_node_health.py",
    "jobs.block": "needs jobs that exclude each other: services/test_lease_kills.py",
    **dict.fromkeys(
        ("jobs.request_pause", "jobs.pause", "jobs.resume", "attempts.copy", "attempts.remove_from_job"),
        "needs a job that is paused: services/test_pausing.py",
    ),
    **dict.fromkeys(
        (
            "dataset_changes.delete",
            "dataset_changes.delete_others",
            "dataset_changes.write",
            "dataset_records.apply",
            "dataset_records.delete",
            "dataset_records.rehash",
            "dataset_runs.change",
            "dataset_runs.delete",
            "dataset_runs.drop_figures",
            "dataset_runs.forget",
            "dataset_runs.save",
            "dataset_runs.supersede",
            "datasets.applied",
            "datasets.change",
            "datasets.claim",
            "datasets.insert",
            "datasets.learn_from",
            "datasets.mark_deleted",
            "datasets.note_project",
            "datasets.publish",
            "datasets.raise_floor",
            "datasets.release",
            "datasets.remove",
            "datasets.renew",
            "folds.again",
            "folds.done",
            "folds.forget",
            "folds.release",
            "folds.wait",
        ),
        "needs a run of a dataset: services/test_dataset_kills.py",
    ),
    "jobs.unblock": "needs jobs that exclude each other: services/test_lease_kills.py",
    "nodes.failed": "needs a node that fails: services/test_node_health.py",
    "nodes.succeeded": "needs a node that has failed: services/test_node_health.py",
    "nodes.returned": "needs a node that has failed: services/test_node_health.py",
    "nodes.drain": "one write that nothing follows: services/test_node_health.py",
    "nodes.resume": "needs a node that was drained: services/test_node_health.py",
    "node.add_version": "deploys an egg: eggs/test_kills.py",
    "node.stage_version": "deploys an egg: eggs/test_kills.py",
    "node.discard_version": "deploys an egg: eggs/test_kills.py",
    "node.unpack": "deploys an egg: eggs/test_kills.py",
    "node.put_venv": "installs what an egg depends on: eggs/test_venvs.py",
    **dict.fromkeys(
        ("files.put", "files.note", "jobs.record_files"),
        "needs a crawl that writes files: tailer/test_files_on_s3.py",
    ),
    **dict.fromkeys(("files.remove", "files.forget"), "removes files: services/test_retention_kills.py"),
    **dict.fromkeys(
        (
            *("files.move", "exports.put", "exports.move", "exports.succeed", "exports.clear"),
            *(
                "dataset_runs.ask_exports",
                "dataset_runs.claim_exports",
                "dataset_runs.renew_exports",
                "dataset_runs.note_exports",
            ),
        ),
        "writes an export: services/test_export_kills.py",
    ),
    "node.note_code": "runs an egg: eggs/test_kills.py",
    "node.take_away": "removes an egg: eggs/test_kills.py",
    "node.write_listing": "deploys an egg: eggs/test_kills.py",
    "node.delete_version": "removes an egg: eggs/test_kills.py",
    "eggs.write": "deploys an egg: services/test_egg_kills.py",
    "eggs.put": "deploys an egg: services/test_egg_kills.py",
    "eggs.describe": "deploys an egg: services/test_egg_kills.py",
    "eggs.delete": "removes an egg: services/test_egg_kills.py",
    "eggs.discard": "removes an egg: services/test_egg_kills.py",
    "eggs.lose": "needs an egg that is damaged: services/test_egg_kills.py",
    "eggs.sweep": "needs what a kill has left of an egg: services/test_egg_kills.py",
    "egg_copies.agree": "deploys an egg: services/test_egg_kills.py",
    "egg_copies.mark_outdated": "replaces an egg: services/test_egg_kills.py",
    "egg_copies.gone": "removes an egg: services/test_egg_kills.py",
    "egg_copies.begin": "brings an egg: services/test_egg_kills.py",
    "egg_copies.brought": "brings an egg: services/test_egg_kills.py",
    "egg_copies.failed": "brings an egg to a node that refuses it: services/test_egg_kills.py",
    "egg_copies.forget": "needs a node that is gone: services/test_egg_kills.py",
    "egg_copies.outdate": "replaces an egg: services/test_egg_kills.py",
    "versions.change": "deploys an egg: services/test_egg_kills.py",
    "revision.increase": "deploys an egg: services/test_egg_kills.py",
    "nodes.took_egg": "one write that the next heartbeat repeats: e2e/test_deploy.py",
    "node.tell_deployment": "deploys an egg: eggs/test_kills.py",
    "tailer.note_deployment": "deploys an egg: tailer/test_rare_crash_points.py",
    "egg_needs.tell": "brings an egg to a node that refuses it: services/test_egg_kills.py",
    "spider.enter": "runs an egg: eggs/test_kills.py",
    "node.take_place": "needs nodes that share a folder: crawler_node/test_places.py",
    "node.note_place": "needs nodes that share a folder: crawler_node/test_places.py",
    "node.give_user": "needs root: crawler_node/test_users.py",
    "node.give_folder": "needs root: crawler_node/test_users.py",
    "node.name_instance": "comes at the first start alone: tailer/test_names.py",
    "node.note_stopping": "stops what runs: crawler_node/test_forks.py",
    "node.queue_job": "takes a plain Scrapyd job: crawler_node/test_rare_crash_points.py",
    "node.withdraw": "cancels what is queued: crawler_node/test_rare_crash_points.py",
    **dict.fromkeys(
        ("keys.insert", "keys.revoke", "keys.use_up", "keys.end_session", "keys.note_use"),
        "no write follows: storage/test_keys.py",
    ),
    **dict.fromkeys(
        (
            *("budgets.make", "budgets.reserve", "budgets.charge", "budgets.give_back", "jobs.note_budget"),
            "budgets.forget",
        ),
        "needs a key with a budget: services/test_budgets.py",
    ),
    "projects.put": "one write that nothing follows: services/test_project_environment.py",
    "webhook_secrets.put": "one write that nothing follows: unit/gateway/signals/test_signatures.py",
    "jobs.announce_later": "needs a job that cannot be announced: services/test_endpoints.py",
    **dict.fromkeys(
        ("node_states.put", "node_states.remove"), "needs a node that is down: services/test_endpoints.py"
    ),
    **dict.fromkeys(
        ("saved_views.put", "saved_views.undefault", "saved_views.delete"),
        "one write each: storage/test_saved_views.py",
    ),
    "versions.told": "needs another version of a project: services/test_endpoints.py",
    "schedule_ledger.announced": "needs an occurrence that did not run: services/test_endpoints.py",
    "alerts.look_later": "one write after an alert that cannot be told of: services/store_story.py",
    "alerts.forget": "comes weeks later: services/test_retention.py",
    "endpoints.disable": "comes days later, or needs a receiver that is gone: services/test_endpoints.py",
    "run_days.advance": "needs a job of a release before: storage/test_run_days.py",
    **dict.fromkeys(
        (
            *("attempt_errors.save", "error_groups.note_new", "error_groups.change", "error_groups.forget"),
            "error_groups.give_way",
        ),
        "needs crawls with errors, of long ago, and somebody who resolves them: services/store_story.py",
    ),
    "run_days.forget": "needs a sum of more than a year ago: storage/test_run_days.py",
    "deliveries.supersede": "needs an endpoint that asks for each count of items: services/store_story.py",
    "deliveries.forget": "the same as with the audit trail: services/test_retention.py",
    **dict.fromkeys(("audit.insert", "audit.note_failures", "audit.forget"), "the same: storage/test_audit.py"),
    **dict.fromkeys(
        ("unreadable.note", "unreadable.forget", "jobs.set_aside"),
        "needs a document that cannot be read: storage/test_documents.py",
    ),
    **dict.fromkeys(
        (
            *("windows.insert", "windows.advance", "windows.take", "windows.leave", "windows.finish"),
            *("windows.mark_removed", "dedupe.release_all"),
        ),
        "needs jobs that ended weeks ago: services/test_retention_kills.py",
    ),
    "heartbeats.forget": "comes once a minute: services/test_retention_kills.py",
    "nodes.forget": "needs a node that died a week ago: services/test_retention_kills.py",
    "rate.reserve": "needs a site with a rate limit: crawler/test_site_rate.py",
    "rate.withdraw": "needs a crawl that is stopped while it waits for one: crawler/test_site_rate.py",
    "tailer.remove_plain_logs": "comes weeks later: tailer/test_rare_crash_points.py",
    "tailer.remove_attempt": "comes a day later: tailer/test_rare_crash_points.py",
    "tailer.withdraw": "comes three minutes later: tailer/test_rare_crash_points.py",
    "document_format.raise": "comes at the first start of a newer version: storage/test_document_format.py",
    "counters.next": "needs a site: services/test_site_kills.py",
    "sites.insert": "needs a site: services/test_site_kills.py",
    "sites.replace": "needs a site: services/test_site_kills.py",
    "sites.delete": "needs a site: services/test_site_kills.py",
    "targets.insert": "needs a site: services/test_site_kills.py",
    "targets.replace": "needs a site: services/test_site_kills.py",
    "targets.scheduled": "needs a site: services/test_site_kills.py",
    "targets.delete": "needs a site: services/test_site_kills.py",
    "idempotency_keys.claim": "needs a request with a key: storage/test_jobs.py",
    "idempotency_keys.forget": "comes a day later, and nothing follows: services/test_retention.py",
    "schedules.insert": "needs a schedule: services/test_scheduling_kills.py",
    "schedules.overtake": "needs a schedule: services/test_scheduling_kills.py",
    "schedules.change": "needs a schedule: services/test_scheduling_kills.py",
    "schedules.touch": "needs a schedule: services/test_scheduling_kills.py",
    "schedules.delete": "needs a schedule: services/test_scheduling_kills.py",
    "schedules.insert_occurrences": "needs a schedule: services/test_scheduling_kills.py",
    "schedules.advance": "needs a schedule: services/test_scheduling_kills.py",
    "schedules.promote": "needs a schedule: services/test_scheduling_kills.py",
    "schedules.refresh": "needs a schedule: services/test_scheduling_kills.py",
    "schedules.void": "needs a schedule: services/test_scheduling_kills.py",
    "schedules.uncount": "needs a schedule: services/test_scheduling_kills.py",
    "schedules.remove_occurrence": "needs a schedule: services/test_scheduling_kills.py",
    "schedules.clear": "needs a schedule: services/test_scheduling_kills.py",
    "schedules.release": "needs a schedule: services/test_scheduling_kills.py",
    "schedules.note": "needs a schedule: services/test_scheduling_kills.py",
    "schedules.note_run": "needs a schedule: services/test_scheduling_kills.py",
    "schedules.promote_scheduled": "needs a schedule: services/test_scheduling_kills.py",
    "schedule_ledger.record": "needs a schedule: services/test_scheduling_kills.py",
    "schedule_ledger.delete": "needs a schedule: services/test_scheduling_kills.py",
    "static_entries.claim": "needs a schedule: services/test_scheduling_kills.py",
    "item_fields.keep": "one write that the next look at the fields repeats: web/test_fields.py",
    "schedule_ledger.forget": "needs occurrences of months ago: services/test_retention_kills.py",
}


def every_state_change() -> set[str]:
    """By the source: `tests/unit/house` holds that every write carries one of these decorators."""
    sources = [source for package in ("gateway", "crawler/node") for source in (ROOT / package).rglob("*.py")]
    return {name for source in sources for name in re.findall(r'@state_change\("([a-z_.]+)"\)', source.read_text())}


def pages() -> dict[str, str]:
    links = html('<a href="a">a</a> <a href="b">b</a>', title="start")
    return {
        f"/c/{number}/{name}": links if name == "" else html("leaf", title=name)
        for number in range(CRAWLS)
        for name in ("", "a", "b")
    }


class Client:
    """A user who does not give up: repeats what was not answered, safely, with an idempotency key."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack

    def call(self, method: str, path: str, **options: Any) -> httpx2.Response:
        def answered() -> httpx2.Response | None:
            answer = self.stack.http.request(method, f"{self.stack.url}{path}", **options)
            return None if answer.status_code >= 500 else answer

        return wait_until(answered, timeout=90, what=f"an answer to {method} {path}")

    def crawl(self, url: str, *, key: str | None = None, **fields: Any) -> str:
        body = {"user_id": "tester", "spider": "seo", "start_urls": [url], **fields}
        headers = {"Idempotency-Key": key} if key else {}
        answer = self.call("POST", "/crawl", json=body, headers=headers)
        assert answer.status_code == httpx2.codes.OK, answer.text
        return str(answer.json()["job_id"])

    def status(self, job_id: str) -> dict[str, Any]:
        described: dict[str, Any] = self.call("GET", f"/jobs/{job_id}/status").json()
        return described

    def wait_final(self, job_id: str) -> dict[str, Any]:
        def final() -> dict[str, Any] | None:
            status = self.status(job_id)
            return status if status["status"] in FINAL else None

        return wait_until(final, timeout=240, what=f"the end of job {job_id}")


class Bystander(threading.Thread):
    """Uses every other door while the crawls run, so that its writes are reached too, until told to stop."""

    def __init__(self, client: Client, site: Site) -> None:
        super().__init__(daemon=True)
        self.client, self.site = client, site
        self.enough = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.enough.is_set():
                self.once()
        except BaseException as error:  # noqa: BLE001 - told to the test, which fails with it
            self.failure = error

    def once(self) -> None:
        client, mark = self.client, uuid.uuid4().hex
        # refused, repeated with a webhook, overtaken, cancelled
        refused = {"user_id": "b", "project": "default", "spider": "none", "start_urls": [f"{self.site.url}/{mark}"]}
        client.call("POST", "/crawl", json=refused)
        page = f"{self.site.url}/missing/{mark}"
        first = client.crawl(page, user_id="b")
        client.crawl(page, user_id="b", webhook_url="http://127.0.0.1:9/hook")
        second = client.crawl(page, user_id="b", ignore_cache=True)
        client.call("POST", f"/jobs/{second}/cancel")
        # a site that is down: tried again, then given up
        dead = client.crawl(f"http://127.0.0.1:9/{mark}", user_id="b", max_retries=1)
        for job in (first, second, dead):
            client.wait_final(job)
        again = client.call("POST", f"/dead-letters/{dead}/requeue").json().get("job_id")
        if again:
            client.call("POST", f"/jobs/{again}/cancel")
            client.wait_final(again)
        client.call("DELETE", f"/jobs/{first}")
        self.tell_endpoint()

    def tell_endpoint(self) -> None:
        """Of one that does not answer, until it is deleted."""
        client = self.client
        made = client.call("POST", "/endpoints", json={"user_id": "b", "url": "http://127.0.0.1:9/"}).json()
        mine = f"/endpoints/{made['endpoint_id']}"
        told = client.call("POST", f"{mine}/test").json()["delivery_id"]
        wait_until(lambda: client.call("GET", f"{mine}/deliveries/{told}").json()["tries"], what="a call", timeout=90)
        client.call("POST", f"{mine}/deliveries/resend", json={"missing": True})
        client.call("PATCH", mine, json={"paused": True})
        client.call("DELETE", mine)
        self.make_rule()

    def make_rule(self) -> None:
        """Of one alert that is then silenced, and forgotten with its rule."""
        client = self.client
        body = {"user_id": "b", "name": "waiting", "when": {"measure": "failed"}}
        rule = client.call("POST", "/alerts/rules", json=body).json()
        client.call("PATCH", f"/alerts/rules/{rule['rule_id']}", json={"paused": True})
        for alert in client.call("GET", "/alerts?user_id=b").json()["alerts"]:
            client.call("POST", f"/alerts/{alert['alert_id']}/silence", json={"until": None})
            client.call("DELETE", f"/alerts/{alert['alert_id']}")
        client.call("DELETE", f"/alerts/rules/{rule['rule_id']}")


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    (folder := tmp_path / "plan").mkdir()
    return folder


@pytest.fixture
def stack(tmp_path: Path, plan: Path) -> Iterator[Stack]:
    variables = {
        "DISCOVERYBOT_CRASH_PLAN": str(plan),
        "DISCOVERYBOT_RESTART_BACKOFF_MAX": "0.2",
        "CRAWL_STOP_GRACE": "2",
        "NODE_SLOTS": "6",
    }
    with running_stack(tmp_path / "home", **variables) as stack:
        yield stack


def crash_points(writes: set[str], seed: int) -> list[str]:
    """Both sides of each write, or in short one of some that `seed` chooses: each death costs a start."""
    chance, sides = random.Random(seed), ("before", "after")
    if FULL:
        return [f"{name}.{side}" for name in sorted(writes) for side in sides]
    chosen = chance.sample(sorted(writes), WRITES)
    led_to_by = [LED_TO_BY[name] for name in chosen if name in LED_TO_BY]
    return sorted({*(f"{name}.{chance.choice(sides)}" for name in chosen), *led_to_by})


def kill_at_random(stack: Stack, seed: int, enough: threading.Event) -> list[str]:
    """SIGKILLs at moments and of processes that `seed` chooses; who was killed."""
    chance, killed = random.Random(seed), list[str]()
    while len(killed) < RANDOM_KILLS and not enough.wait(chance.uniform(0.2, 2.0)):
        victim = chance.choice(VICTIMS)
        try:
            stack.kill(victim)
        except (ProcessLookupError, KeyError):
            continue
        killed.append(victim)
    return killed


@pytest.mark.stack
@pytest.mark.timeout(900)
def test_crawls_each_run_once_to_their_end_whoever_is_killed(stack: Stack, plan: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    sys.stdout.write(f"seed of the random kills: {seed}\n")  # shown where the test fails
    planned = every_state_change() - set(ELSEWHERE)
    client = Client(stack)
    with Site(pages=pages()) as site:
        for point in (points := crash_points(planned, seed)):
            (plan / point).touch()
        bystander = Bystander(client, site)
        bystander.start()
        jobs = {
            number: client.crawl(f"{site.url}/c/{number}/", key=f"crawl-{number}", max_retries=20)
            for number in range(CRAWLS)
        }
        enough = threading.Event()
        killed = kill_at_random(stack, seed, enough)
        last_kill = time.monotonic()
        redis.Redis.from_url(stack.ready["redis_url"]).flushall()
        ends = {number: client.wait_final(job) for number, job in jobs.items()}
        recovered = time.monotonic() - last_kill
        deadline = time.monotonic() + PATIENCE
        while (left := sorted(path.name for path in plan.iterdir())) and time.monotonic() < deadline:
            time.sleep(0.5)
        bystander.enough.set()
        bystander.join(120)
        assert bystander.failure is None
        assert len(left) <= LEFT, f"crash points that were never reached: {left}"
        assert len(killed) == RANDOM_KILLS
        assert len(set(jobs.values())) == CRAWLS
        injected = (
            f"SIGKILL at {len(points) - len(left)} sides of writes, × {RANDOM_KILLS} at random; {CRAWLS} crawls"
        )
        lost = sum(end["status"] != "finished" for end in ends.values())
        doubled = sum(is_doubled(client, site, number, job) for number, job in jobs.items())
        record("Every process killed at every write", injected, lost=lost, doubled=doubled, recovered=recovered)
        for number, job in jobs.items():
            check_crawl(stack, client, site, number, job)


def is_doubled(client: Client, site: Site, number: int, job_id: str) -> bool:
    """More visits than attempts, or more than one attempt that is said to be complete."""
    attempts = client.call("GET", f"/jobs/{job_id}").json()["attempts"]
    finished = sum(attempt["status"] == "finished" for attempt in attempts)
    return max(site.hits(f"/c/{number}/{name}") for name in ("", "a", "b")) > len(attempts) or finished > 1


def check_crawl(stack: Stack, client: Client, site: Site, number: int, job_id: str) -> None:
    """One complete run, each attempt at most once, every item once, every line of every log there."""
    detail = client.call("GET", f"/jobs/{job_id}").json()
    attempts = [attempt["attempt"] for attempt in detail["attempts"]]
    assert [attempt["status"] for attempt in detail["attempts"]].count("finished") == 1
    for name in ("", "a", "b"):
        assert 1 <= site.hits(f"/c/{number}/{name}") <= len(attempts)
    items = client.call("GET", f"/jobs/{job_id}/items", params={"format": "jsonl"}).text.splitlines()
    assert len(items) == len(set(items)) == 3
    for attempt in attempts:
        # an attempt that died before it was launched has left no log
        on_node = stack.home / "node" / "outbox" / f"{job_id}-{attempt}" / "crawl.log"
        written = on_node.read_bytes() if on_node.exists() else b""
        headers = {"Accept": "text/plain"}
        shipped = client.call("GET", f"/jobs/{job_id}/logs", params={"attempt": attempt}, headers=headers).content
        assert shipped == written
        assert len(re.findall(rb"Spider opened", written)) <= 1
