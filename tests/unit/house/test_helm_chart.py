"""The chart runs what the compose file runs, with settings that exist and no more rights.

Its templates are read as they are, and as helm renders them where there is a helm (on PATH, or in `.tools`).
`make chart` builds one, and brings the schemas of Kubernetes: nothing of this file is skipped there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from functools import cache
from importlib import import_module
from importlib.metadata import version
from typing import Any, NoReturn

import jsonschema
import pytest
import yaml
from unit.house.compose_file import read_compose_file
from unit.house.sources import ROOT

from gateway.jobs.job import WaitingReason
from gateway.settings import OUTSIDE_SETTINGS, NodeSettings, Settings
from gateway.web.routes.metrics import platform_families

CHART = ROOT / "deploy/helm/discoverybot"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
SCHEMA = json.loads((CHART / "values.schema.json").read_bytes())
TEMPLATES = {path.name: path.read_text(encoding="utf-8") for path in sorted((CHART / "templates").iterdir())}
HELM = shutil.which("helm", path=f"{ROOT / '.tools'}:{ROOT / '.tools/bin'}") or shutil.which("helm")
COMPOSE = read_compose_file().services
KNOWN = {name.upper() for name in Settings.model_fields} | OUTSIDE_SETTINGS
#: By the container: the compose file's service.
CONTAINERS = {"gateway": "scheduler", "worker": "worker", "beat": "beat", "scrapyd": "scrapyd", "tailer": "tailer"}
#: Every part of the chart that is off by default.
ALL_ON = (
    *("drain.secret=admin", "keda.enabled=true", "node.storageClass=fast", "images.pullSecrets={registry}"),
    *("ingress.enabled=true", "ingress.host=crawl.example.org", "ingress.tlsSecret=tls", "ingress.className=nginx"),
    *("ingress.annotations.buffering=off", "serviceMonitor.enabled=true", "serviceMonitor.secret=metrics"),
    *("gateway.autoscaling.enabled=true", "serviceMonitor.labels.release=prometheus"),
    *(
        f"{component}.{value}"
        for component in ("gateway", "worker", "beat", "node")
        for value in ("priorityClassName=high", "nodeSelector.disk=ssd", "tolerations[0].key=ours")
    ),
)
#: Kinds that are not Kubernetes' own.
OPERATORS = {"ScaledObject", "ServiceMonitor"}
MIB = 1 << 20

Document = dict[str, Any]


def _missing(what: str) -> NoReturn:
    """Skips, but not in `make chart`."""
    (pytest.fail if "CHART" in os.environ else pytest.skip)(f"{what}: `make chart` brings it")


@cache
def _render(*given: str, strings: bool = False, values: str = "{}") -> dict[tuple[str, str], Document]:
    """The documents by kind and name. Raises `CalledProcessError` where helm refuses the values."""
    if HELM is None:
        _missing("helm is not installed")
    options = [word for value in given for word in ("--set-string" if strings else "--set", value)]
    command = [HELM, "template", "db", str(CHART), "--kube-version", "1.30", "--values", "-", *options]
    text = subprocess.run(command, input=values, check=True, capture_output=True, text=True).stdout
    documents = (document for document in yaml.safe_load_all(text) if document)
    return {(document["kind"], document["metadata"]["name"]): document for document in documents}


@pytest.fixture(scope="module", params=[(), ALL_ON], ids=["as it is", "all on"])
def rendered(request: pytest.FixtureRequest) -> dict[tuple[str, str], Document]:
    return _render(*request.param)


def _pods(rendered: dict[tuple[str, str], Document]) -> list[Document]:
    return [
        each["spec"]["template"]["spec"] for (kind, _), each in rendered.items() if kind.endswith(("ment", "Set"))
    ]


def _containers(rendered: dict[tuple[str, str], Document]) -> dict[str, Document]:
    return {container["name"]: container for pod in _pods(rendered) for container in pod["containers"]}


# --- as it is written


def test_it_is_of_the_platforms_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["version"] == chart["appVersion"] == version("discoverybot")


def test_its_values_are_those_that_it_describes() -> None:
    jsonschema.validate(VALUES, SCHEMA)


@pytest.mark.parametrize(
    ("group", "name", "value"),
    [
        ("all", "MONGO_PASSWORD", "x"),
        ("platform", "MONGO_URI", "mongodb://user:password@host/db"),
        ("platform", "FILES_URL", "/files"),
        ("worker", "WORKER_CONCURRENCY", 8),
    ],
)
def test_a_secret_a_folder_and_a_number_are_no_settings(group: str, name: str, value: object) -> None:
    settings = {**VALUES["settings"], group: {**VALUES["settings"][group], name: value}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**VALUES, "settings": settings}, SCHEMA)


def test_every_variable_is_one_that_somebody_reads() -> None:
    named = {name for group in VALUES["settings"].values() for name in group}
    named |= {name for text in TEMPLATES.values() for name in re.findall(r"\{name: ([A-Z][A-Z_]+),", text)}
    assert {"MONGO_URI", "GATEWAY_HOST", "NODE_URL"} <= named <= KNOWN


def test_every_secret_is_a_setting() -> None:
    text = TEMPLATES["_parts.tpl"] + "".join(TEMPLATES.values())
    named = set(re.findall(r'"(\w+_(?:password|key))"', text)) | set(re.findall(r"path: (\w+_\w+)\}", text))
    assert {"mongo_password", "secrets_key", "files_secret_key"} <= named <= set(Settings.model_fields)


def test_its_processes_are_those_of_the_compose_file() -> None:
    text = "\n".join(TEMPLATES.values())
    commands = [
        yaml.safe_load(found) for found in re.findall(r"^ +command: (\[[^{\n]*\])$", text, flags=re.MULTILINE)
    ]
    for service in CONTAINERS.values():
        assert _alone(COMPOSE[service].command) in commands


def test_nothing_in_it_is_of_the_machine_or_privileged() -> None:
    text = "\n".join(TEMPLATES.values())
    assert not re.findall(r"privileged: true|host(?:Network|PID|IPC|Path|Port)", text)
    assert "allowPrivilegeEscalation: true" not in text


# --- as helm renders it


@pytest.mark.parametrize("kubernetes", ["1.25", "1.30", "1.37"])
def test_kubernetes_takes_each_document_and_knows_all_its_fields(
    rendered: dict[tuple[str, str], Document], kubernetes: str
) -> None:
    try:
        schemas = import_module("kubernetes_validate")
    except ModuleNotFoundError:
        _missing("kubernetes-validate is not installed")
    ours = [document for (kind, _), document in rendered.items() if kind not in OPERATORS]
    assert [schemas.validate(document, kubernetes, strict=True) for document in ours] == [kubernetes] * len(ours)
    with pytest.raises(schemas.ValidationError):
        schemas.validate({**ours[0], "spce": {}}, kubernetes, strict=True)


def test_each_container_runs_its_command_and_is_asked_what_docker_asks_it(
    rendered: dict[tuple[str, str], Document],
) -> None:
    containers = _containers(rendered)
    assert set(containers) == set(CONTAINERS)
    for name, service in CONTAINERS.items():
        healthcheck = COMPOSE[service].healthcheck
        assert healthcheck
        assert containers[name]["command"] == _alone(COMPOSE[service].command)
        probes = {key: probe for key, probe in containers[name].items() if key.endswith("Probe")}
        assert {f"{probe['timeoutSeconds']}s" for probe in probes.values()} == {healthcheck.timeout}
        # one that needs MongoDB would start all anew while MongoDB is away
        listens = name in {"gateway", "scrapyd"}
        assert set(probes) == {"readinessProbe", *(("livenessProbe", "startupProbe") if listens else ())}
        if listens:
            (asked,) = re.findall(r"'http://[\w.]+:(\d+)(/[^']*)'", healthcheck.test[-1])
            ports = {port["name"]: str(port["containerPort"]) for port in containers[name]["ports"]}
            by_http = [probe["httpGet"] for probe in probes.values()]
            assert {(ports[get["port"]], get["path"]) for get in by_http} == {asked}
        else:
            assert probes["readinessProbe"]["exec"]["command"] == healthcheck.test[1:]
            # each starts a Python
            assert probes["readinessProbe"]["periodSeconds"] >= 120


def test_no_service_of_the_cluster_is_taken_for_a_setting(rendered: dict[tuple[str, str], Document]) -> None:
    # a service called discoverybot-gateway would set DISCOVERYBOT_GATEWAY_PORT
    assert all(pod["enableServiceLinks"] is False for pod in _pods(rendered))


def test_no_container_has_more_rights_than_in_docker(rendered: dict[tuple[str, str], Document]) -> None:
    for pod in _pods(rendered):
        assert pod["automountServiceAccountToken"] is False
        assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"]) == (True, 10001)
        for container in (*pod["containers"], *pod.get("initContainers", ())):
            rights = container["securityContext"]
            assert (rights["allowPrivilegeEscalation"], rights["readOnlyRootFilesystem"]) == (False, True)
            added = ["SETUID", "SETGID"] if container["name"] == "scrapyd" else []
            assert rights["capabilities"] == {"drop": ["ALL"], **({"add": added} if added else {})}
            assert ("runAsUser" in rights) == (container["name"] in {"scrapyd", "sticky"})
            assert container in pod.get("initContainers", ()) or container["resources"]["limits"]["memory"]


def test_each_process_sees_the_secrets_that_it_sees_in_docker(rendered: dict[tuple[str, str], Document]) -> None:
    for pod in _pods(rendered):
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for container in pod["containers"]:
            mounts = {mount["mountPath"]: volumes.get(mount["name"], {}) for mount in container["volumeMounts"]}
            folder = {variable["name"]: variable.get("value") for variable in container["env"]}[
                "DISCOVERYBOT_SECRETS"
            ]
            volume = mounts[folder]
            must, may = (source["secret"] for source in volume["projected"]["sources"])
            seen = {item["path"] for item in must["items"]}
            assert volume["projected"]["defaultMode"] == 0o440
            assert may["optional"]
            cache = {item["path"] for item in may["items"]} == {"http_cache_redis_password"}
            assert cache == (container["name"] == "scrapyd")
            # gateways share no folder, in which one would be kept
            own = {"gateway_signing_key"} if container["name"] == "gateway" else set()
            in_docker = set(COMPOSE[CONTAINERS[container["name"]]].secret_files) - {"http_cache_redis_password"}
            assert seen == in_docker | own


def test_a_node_is_told_no_setting_of_the_stores(rendered: dict[tuple[str, str], Document]) -> None:
    scrapyd = _containers(rendered)["scrapyd"]
    assert [each["configMapRef"]["name"] for each in scrapyd["envFrom"]] == ["db-scrapyd"]
    told = set(rendered["ConfigMap", "db-scrapyd"]["data"]) | {variable["name"] for variable in scrapyd["env"]}
    assert not told & {"MONGO_URI", "REDIS_URL", "RABBITMQ_URL", "BROKER_URL", "DISCOVERYBOT_KEY"}
    for name in set(CONTAINERS) - {"scrapyd"}:
        assert "MONGO_URI" in rendered["ConfigMap", f"db-{name}"]["data"]


def test_the_values_that_the_docs_begin_with_are_taken() -> None:
    page = (ROOT / "docs/how-to/run-on-a-server.md").read_text(encoding="utf-8")
    (values,) = re.findall(r"```yaml\n(# my-values\.yaml.*?)```", page, flags=re.DOTALL)
    rendered = _render(values=values)
    assert rendered["Ingress", "db-gateway"]["spec"]["rules"][0]["host"] == "crawl.example.org"
    assert "db-node" in {name for kind, name in rendered if kind == "NetworkPolicy"}


@pytest.mark.parametrize(
    ("setting", "readers"),
    [
        ("all.LOG_LEVEL=debug", {"gateway", "worker", "beat", "scrapyd", "tailer"}),
        ("platform.FILES_REGION=x", {"gateway", "worker", "beat", "tailer"}),
        ("server.JOB_RETENTION_DAYS=7", {"gateway", "worker", "beat"}),
        ("gateway.GATEWAY_WORKERS=2", {"gateway"}),
        ("worker.WORKER_CONCURRENCY=4", {"worker"}),
        ("node.CRAWL_STOP_GRACE=5", {"scrapyd", "tailer"}),
    ],
)
def test_a_setting_starts_those_anew_that_read_it_and_no_others(setting: str, readers: set[str]) -> None:
    before, after = _render(), _render(f"settings.{setting}", strings=True)
    name = setting.partition(".")[2].partition("=")[0]
    assert {each for each in CONTAINERS if name in after["ConfigMap", f"db-{each}"]["data"]} == readers
    changed = {
        component
        for (kind, component), document in after.items()
        if kind in {"Deployment", "StatefulSet"} and document["spec"] != before[kind, component]["spec"]
    }
    assert changed == {"db-node" if name in {"scrapyd", "tailer"} else f"db-{name}" for name in readers}


def test_scrapyd_and_its_tailer_share_a_disk_and_a_name(rendered: dict[tuple[str, str], Document]) -> None:
    containers = _containers(rendered)
    shared = ("DISCOVERYBOT_HOME", "NODE_NAME", "NODE_URL")
    variables = [
        {each["name"]: each for each in containers[name]["env"] if each["name"] in shared}
        for name in ("scrapyd", "tailer")
    ]
    assert variables[0] == variables[1]
    assert list(variables[0]) == list(shared)
    node = rendered["StatefulSet", "db-node"]["spec"]
    assert variables[0]["NODE_URL"]["value"] == f"http://$(NODE_NAME).{node['serviceName']}.default.svc:6800"
    assert ("Service", node["serviceName"]) in rendered
    assert [claim["metadata"]["name"] for claim in node["volumeClaimTemplates"]] == ["data"]


def test_only_gateway_and_workers_reach_a_node_and_it_reaches_no_private_address(
    rendered: dict[tuple[str, str], Document],
) -> None:
    policy = rendered["NetworkPolicy", "db-node"]["spec"]
    ((peer,),) = [rule["from"] for rule in policy["ingress"]]
    assert peer["podSelector"]["matchExpressions"][0]["values"] == ["gateway", "worker"]
    assert policy["ingress"][0]["ports"] == [{"port": 6800}]
    blocks = [to["ipBlock"] for rule in policy["egress"] for to in rule.get("to", ()) if "ipBlock" in to]
    assert {"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"} <= set(blocks[0]["except"])
    assert not rendered["NetworkPolicy", "db-listens-nowhere"]["spec"].get("ingress")


def test_a_few_pods_of_a_kind_go_at_a_time_and_they_are_spread(rendered: dict[tuple[str, str], Document]) -> None:
    for component in ("gateway", "worker", "beat", "node"):
        budget = rendered["PodDisruptionBudget", f"db-{component}"]["spec"]
        spec = rendered["StatefulSet" if component == "node" else "Deployment", f"db-{component}"]["spec"]
        assert budget["maxUnavailable"] == (VALUES["node"]["maxUnavailable"] if component == "node" else 1)
        assert budget["selector"] == spec["selector"]
        (spread,) = spec["template"]["spec"]["topologySpreadConstraints"]
        assert spread["labelSelector"] == spec["selector"]


def test_a_hundred_nodes_are_drained_in_four_turns_and_not_in_a_hundred() -> None:
    assert VALUES["node"]["maxUnavailable"] == "25%"
    spec = _render(*ALL_ON)["StatefulSet", "db-node"]["spec"]
    assert spec["podManagementPolicy"] == "Parallel"
    assert spec["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%"}}
    by_hand = _render("node.updateStrategy=OnDelete")["StatefulSet", "db-node"]["spec"]
    assert by_hand["updateStrategy"] == {"type": "OnDelete"}


def test_all_crawls_of_a_node_at_their_limits_are_within_the_nodes() -> None:
    nodes = {
        (): (int(VALUES["settings"]["node"]["NODE_SLOTS"]), NodeSettings.model_fields["crawl_memory_limit"].default),
        ("settings.node.NODE_SLOTS=20", "settings.all.CRAWL_MEMORY_LIMIT=1073741824"): (20, 1 << 30),
    }
    for given, (slots, each) in nodes.items():
        memory = _containers(_render(*given, strings=True))["scrapyd"]["resources"]["limits"]["memory"]
        assert int(memory.removesuffix("Mi")) * MIB == slots * each + (4 << 30)
    said = _containers(_render("node.resources.limits.memory=6Gi"))["scrapyd"]["resources"]
    assert said == {"requests": VALUES["node"]["resources"]["requests"], "limits": {"memory": "6Gi"}}
    with pytest.raises(subprocess.CalledProcessError):
        _render("settings.node.CRAWL_MEMORY_LIMIT=0", strings=True)


def test_no_folder_of_a_pod_grows_without_end(rendered: dict[tuple[str, str], Document]) -> None:
    for pod in _pods(rendered):
        folders = {volume["name"]: volume["emptyDir"] for volume in pod["volumes"] if "emptyDir" in volume}
        assert all(folder["sizeLimit"] for folder in folders.values())
        # of what is on the machine's disk, a pod that has too much is evicted, with all its crawls
        in_memory = {name for name, folder in folders.items() if folder.get("medium") == "Memory"}
        assert in_memory == set(folders) - {"data", "signs"}


def test_every_pod_goes_where_its_values_say(rendered: dict[tuple[str, str], Document]) -> None:
    for pod in _pods(rendered):
        assert pod["dnsConfig"]["options"] == [{"name": "ndots", "value": "2"}]
        names = ("imagePullSecrets", "priorityClassName", "nodeSelector", "tolerations")
        said = {name: pod[name] for name in names if name in pod}
        on = {
            "imagePullSecrets": [{"name": "registry"}],
            "priorityClassName": "high",
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "ours"}],
        }
        assert said == (on if "priorityClassName" in pod else {})


def test_the_gateways_are_as_many_as_their_work_wants_where_that_is_on() -> None:
    assert _render()["Deployment", "db-gateway"]["spec"]["replicas"] == VALUES["gateway"]["replicas"]
    rendered = _render(*ALL_ON)
    assert "replicas" not in rendered["Deployment", "db-gateway"]["spec"]
    spec = rendered["HorizontalPodAutoscaler", "db-gateway"]["spec"]
    assert spec["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "db-gateway"}
    assert (spec["minReplicas"], spec["maxReplicas"]) == (VALUES["gateway"]["replicas"], 10)


def test_ingress_and_prometheus_ask_the_gateways_service() -> None:
    assert not {"Ingress", "ServiceMonitor", "HorizontalPodAutoscaler"} & {kind for kind, _ in _render()}
    rendered = _render(*ALL_ON)
    service = rendered["Service", "db-gateway"]
    ingress = rendered["Ingress", "db-gateway"]["spec"]
    assert ingress["tls"] == [{"hosts": ["crawl.example.org"], "secretName": "tls"}]
    (path,) = ingress["rules"][0]["http"]["paths"]
    (port,) = service["spec"]["ports"]
    assert path["backend"] == {"service": {"name": "db-gateway", "port": {"name": port["name"]}}}
    monitor = rendered["ServiceMonitor", "db-gateway"]["spec"]
    (endpoint,) = monitor["endpoints"]
    assert endpoint["port"] == port["name"]
    assert endpoint["authorization"] == {"credentials": {"name": "metrics", "key": "key"}}
    labels = service["metadata"]["labels"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    # by which the alerts know the gateways
    assert f'job="{labels[monitor["jobLabel"]]}"' in (ROOT / "deploy/monitoring/alerts.yml").read_text("utf-8")
    for without in ("ingress.host=", "serviceMonitor.secret="):
        with pytest.raises(subprocess.CalledProcessError):
            _render(*ALL_ON, without)


def test_a_node_is_drained_only_with_a_key_and_has_the_time_for_it() -> None:
    plain, drained = (_render(*given)["StatefulSet", "db-node"] for given in ((), ALL_ON))
    pods = [each["spec"]["template"]["spec"] for each in (plain, drained)]
    assert not [container for container in pods[0]["containers"] if "lifecycle" in container]
    assert [container["name"] for container in pods[1]["containers"] if "lifecycle" in container] == [
        "scrapyd",
        "tailer",
    ]
    stop = pods[1]["containers"][1]["lifecycle"]["preStop"]["exec"]["command"][2]
    assert f'nodes drain "$NODE_NAME" --wait --timeout {VALUES["drain"]["seconds"]}\nrm' in stop
    grace = [pod["terminationGracePeriodSeconds"] for pod in pods]
    assert grace[1] - grace[0] == VALUES["drain"]["seconds"]


def test_keda_counts_the_nodes_where_it_is_on() -> None:
    assert "replicas" in _render()["StatefulSet", "db-node"]["spec"]
    rendered = _render(*ALL_ON)
    assert "replicas" not in rendered["StatefulSet", "db-node"]["spec"]
    (trigger,) = rendered["ScaledObject", "db-node"]["spec"]["triggers"]
    assert re.findall(r"discoverybot_\w+", trigger["metadata"]["query"]) == [
        "discoverybot_jobs_waiting",
        "discoverybot_jobs",
    ]
    (reasons,) = re.findall(r'reason=~"([^"]+)"', trigger["metadata"]["query"])
    assert set(reasons.split("|")) == {WaitingReason.CAPACITY, WaitingReason.NO_NODE}
    assert trigger["metadata"]["threshold"] == VALUES["settings"]["node"]["NODE_SLOTS"]


def test_no_node_is_taken_away_while_nobody_knows_how_many_crawls_run() -> None:
    spec = _render(*ALL_ON)["ScaledObject", "db-node"]["spec"]
    (trigger,) = spec["triggers"]
    # without MongoDB its figures are missing: the query has no result, which KEDA takes for 0 if it is not told
    # otherwise
    without_mongodb = {family.name for family in platform_families(None)}
    assert not without_mongodb & set(re.findall(r"discoverybot_\w+", trigger["metadata"]["query"]))
    assert trigger["metadata"]["ignoreNullValues"] == "false"
    # it leaves the number as it is then, unless it has one to fall back to
    assert "fallback" not in spec
    behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior["scaleDown"]["stabilizationWindowSeconds"] == spec["cooldownPeriod"] == 600


def _alone(command: list[str]) -> list[str]:
    """Of a node that shares no volume: it takes no place on one."""
    return " ".join(command).replace("python -m crawler.node.place ", "").split(" ")
