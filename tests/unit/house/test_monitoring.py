"""The files in `deploy/monitoring` are ones that Prometheus and Grafana take, over figures that we have."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from machine import find_program
from unit.house.sources import ROOT

FOLDER = ROOT / "deploy/monitoring"
ALERTS = FOLDER / "alerts.yml"
RULES = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"][0]["rules"]
PANELS = [panel for panel in json.loads((FOLDER / "dashboard.json").read_bytes())["panels"] if panel["type"] != "row"]
#: Figures that are not ours alone.
COMMON = {"up", "process_resident_memory_bytes"}
HEALTHY = {
    "up{job='discoverybot'}": 1,
    "discoverybot_mongodb_up": 1,
    "discoverybot_queue_oldest_seconds": 3,
    "discoverybot_jobs{status='running'}": 2,
    "discoverybot_workers_alive": 1,
    "discoverybot_beats_alive": 2,
    "discoverybot_scheduler_lag_seconds": 0,
    "discoverybot_node_up{node='n1'}": 1,
    "discoverybot_node_state{node='n1',state='up'}": 1,
    "discoverybot_node_state{node='n1',state='quarantined'}": 0,
    "discoverybot_node_disk_full{node='n1'}": 0,
    "discoverybot_node_slots{node='n1'}": 8,
    "discoverybot_jobs_waiting{reason='capacity'}": 4,
    "discoverybot_recent_jobs{site_name='a',status='finished'}": 9,
    "discoverybot_recent_jobs{site_name='a',status='error'}": 1,
    "discoverybot_dead_letters": 0,
    "discoverybot_webhooks_failing": 0,
    "discoverybot_http_requests_total{status='200'}": "0+60x300",
    "discoverybot_http_requests_total{status='500'}": "0+1x300",
    "discoverybot_http_request_duration_seconds_bucket{le='1'}": "0+60x300",
    "discoverybot_http_request_duration_seconds_bucket{le='5'}": "0+61x300",
    "discoverybot_http_request_duration_seconds_bucket{le='+Inf'}": "0+61x300",
}
#: What is wrong, and the alert for it, with the labels that it has beside its severity.
WRONG: list[tuple[dict[str, Any], str, dict[str, str]]] = [
    ({"up{job='discoverybot'}": 0}, "GatewayIsAway", {"job": "discoverybot"}),
    ({"discoverybot_mongodb_up": 0}, "MongoDBIsAway", {}),
    ({"discoverybot_queue_oldest_seconds": 900, "discoverybot_jobs{status='running'}": 0}, "JobsAreStuck", {}),
    ({"discoverybot_workers_alive": 0}, "NoWorker", {}),
    ({"discoverybot_scheduler_lag_seconds": 90}, "SchedulesAreLate", {}),
    ({"discoverybot_beats_alive": 0}, "SchedulesAreLate", {}),
    ({"discoverybot_node_up{node='n1'}": 0}, "NodeIsGone", {"node": "n1"}),
    (
        {"discoverybot_node_state{node='n1',state='quarantined'}": 1},
        "NodeTakesNoWork",
        {"node": "n1", "state": "quarantined"},
    ),
    ({"discoverybot_node_disk_full{node='n1'}": 1}, "NodeDiskIsFull", {"node": "n1"}),
    ({"discoverybot_jobs_waiting{reason='capacity'}": 9}, "TooFewSlots", {}),
    ({"discoverybot_recent_jobs{site_name='a',status='error'}": 10}, "SiteFails", {"site_name": "a"}),
    ({"discoverybot_dead_letters": 1}, "DeadLetters", {}),
    ({"discoverybot_webhooks_failing": 1}, "WebhooksFail", {}),
    ({"discoverybot_http_requests_total{status='500'}": "0+6x300"}, "AnswersAreErrors", {}),
    ({"discoverybot_http_request_duration_seconds_bucket{le='1'}": "0+30x300"}, "AnswersAreSlow", {}),
]


def _series(figures: dict[str, Any]) -> list[dict[str, str]]:
    return [
        {"series": name.replace("'", '"'), "values": value if isinstance(value, str) else f"{value}x300"}
        for name, value in figures.items()
    ]


def _promtool(*arguments: str | Path) -> None:
    done = subprocess.run([find_program("promtool"), *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_for_what_it_is_about_and_for_nothing_else(tmp_path: Path) -> None:
    rules = {rule["alert"]: rule for rule in RULES}
    cases = []
    for wrong, alert, labels in [({}, "", {}), *WRONG]:
        expected = []
        for rule in rules.values():
            found = {"exp_labels": {**rule["labels"], **labels}} if rule["alert"] == alert else None
            expected.append({"eval_time": "2h", "alertname": rule["alert"], "exp_alerts": [found] if found else []})
        cases.append({"interval": "1m", "input_series": _series({**HEALTHY, **wrong}), "alert_rule_test": expected})
    # what an alert says is not tested here
    bare = [{key: value for key, value in rule.items() if key != "annotations"} for rule in RULES]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": bare}]}))
    tests = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": cases}
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(tests))
    _promtool("test", "rules", tmp_path / "tests.yml")
    assert {alert for _, alert, _ in WRONG} == set(rules)


def test_prometheus_takes_the_files_and_understands_the_dashboards_questions(tmp_path: Path) -> None:
    (tmp_path / "discoverybot.key").touch()
    for name in ("alerts.yml", "prometheus.yml"):
        (tmp_path / name).write_bytes((FOLDER / name).read_bytes())
    _promtool("check", "config", tmp_path / "prometheus.yml")
    asked = [target["expr"] for panel in PANELS for target in panel["targets"]]
    rules = [{"record": f"asked:{number}", "expr": expression} for number, expression in enumerate(asked)]
    (tmp_path / "asked.yml").write_text(yaml.safe_dump({"groups": [{"name": "asked", "rules": rules}]}))
    _promtool("check", "rules", tmp_path / "asked.yml")


def test_keda_is_answered_with_the_slots_that_are_wanted_and_not_at_all_while_mongodb_is_away(tmp_path: Path) -> None:
    template = (ROOT / "deploy/helm/discoverybot/templates/keda.yaml").read_text(encoding="utf-8")
    query = " ".join(re.findall(r"query: >-\n(.*?)\n +threshold:", template, flags=re.DOTALL)[0].split())
    # as several gateways tell it
    figures = {
        f"discoverybot_{name}}}": value
        for gateway in ("a", "b")
        for name, value in {
            f"jobs{{gateway='{gateway}',status='running'": 2,
            f"jobs_waiting{{gateway='{gateway}',reason='capacity'": 4,
            f"jobs_waiting{{gateway='{gateway}',reason='no_node'": 1,
            f"jobs_waiting{{gateway='{gateway}',reason='site_busy'": 9,
        }.items()
    }
    cases = [
        {
            "interval": "1m",
            "input_series": _series(told),
            "promql_expr_test": [{"expr": query, "eval_time": "1h", "exp_samples": samples}],
        }
        for told, samples in ((figures, [{"labels": "{}", "value": 7}]), ({"discoverybot_mongodb_up": 0}, []))
    ]
    (tmp_path / "tests.yml").write_text(yaml.safe_dump({"evaluation_interval": "1m", "tests": cases}))
    _promtool("test", "rules", tmp_path / "tests.yml")


def test_all_figures_are_ones_that_we_have() -> None:
    table = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
    rows = "\n".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| `"))
    ours = {f"discoverybot_{name}" for name in re.findall(r"`(\w+)`", rows)} | COMMON
    expressions = [rule["expr"] for rule in RULES]
    expressions += [target["expr"] for panel in PANELS for target in panel["targets"]]
    used = {name for text in expressions for name in re.findall(r"\b(?:discoverybot_\w+|up\b|process_\w+)", text)}
    assert not {name.removesuffix("_bucket") for name in used} - ours


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_each_alert_has_a_part_in_the_runbooks(rule: dict[str, Any]) -> None:
    runbooks = (ROOT / "docs/runbooks.md").read_text(encoding="utf-8")
    assert f"\n## {rule['alert']}\n" in runbooks
    assert rule["annotations"]["runbook"] == f"docs/runbooks.md#{rule['alert'].lower()}"


def test_no_part_of_the_dashboard_lies_on_another() -> None:
    taken = [
        (panel["gridPos"]["y"], x)
        for panel in PANELS
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
    ]
    assert len(set(taken)) == len(taken)
    assert max(x for _, x in taken) < 24
