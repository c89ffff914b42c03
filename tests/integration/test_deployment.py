"""What is in `deploy` is valid, safe, and asks for nothing that the gateway does not have."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from toolscout.cli.serve import serve
from toolscout.config.file import Config, read_config
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.metrics import Metrics
from toolscout.gateway.middleware import Authenticator
from toolscout.schemas import Json
from toolscout.servers.state import Phase
from toolscout.stores.memory import MemoryStore

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "toolscout"
BIN = Path(sys.executable).parent
HELM = shutil.which("helm", path=str(BIN)) or shutil.which("helm")
SCHEMA = "1.31"
"""The oldest version of Kubernetes that is checked; the newest is the default of the checker."""
EVERYTHING = (
    "--set=ingress.enabled=true,ingress.className=haproxy,ingress.tlsSecretName=tls",
    "--set=serviceMonitor.enabled=true,autoscaling.enabled=false,podAnnotations.team=tools",
    '--set-json=imagePullSecrets=[{"name": "registry"}]',
    '--set-json=networkPolicy.from=[{"namespaceSelector": {}}]',
    '--set-json=networkPolicy.database=[{"ipBlock": {"cidr": "192.0.2.0/24"}}]',
    '--set-json=tolerations=[{"operator": "Exists"}]',
)
"""Values that switch on what is off by default."""
OPERATOR_KINDS = {"ServiceMonitor"}
"""Kinds that Kubernetes itself does not have, and its schemas neither."""

needs_helm = pytest.mark.skipif(HELM is None, reason="no helm for this machine")

_METRIC = re.compile(r"\b(?:toolscout|process)_[a-z_]+\b")
_FILE = re.compile(r"\$\{file:([^}]+)\}")


def run(*words: str | Path) -> str:
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def render(*options: str, name: str = "toolscout") -> str:
    assert HELM is not None
    return run(HELM, "template", name, CHART, *options)


def read_objects(text: str) -> dict[str, Json]:
    return {one["kind"]: one for one in yaml.safe_load_all(text) if one}


def read_manifests() -> dict[str, Json]:
    return read_objects((DEPLOY / "kubernetes/toolscout.yaml").read_text(encoding="utf-8"))


# The image


def test_hadolint_finds_nothing_in_the_dockerfile():
    run(BIN / "hadolint", DEPLOY / "Dockerfile")


def test_the_image_does_not_run_as_root_and_starts_the_gateway_with_options_that_exist():
    lines = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").splitlines()
    last = {line.split()[0]: line.partition(" ")[2] for line in lines if line[:1].isupper()}
    command = json.loads(last["CMD"])

    assert last["USER"] == "10001:10001"
    assert json.loads(last["ENTRYPOINT"])[-1] == "toolscout"
    assert command[0] == "serve"
    serve.make_context("serve", command[1:], resilient_parsing=True)


# Kubernetes


@needs_helm
def test_helm_finds_no_fault_with_the_chart():
    assert HELM is not None
    assert "0 chart(s) failed" in run(HELM, "lint", "--strict", CHART)


@needs_helm
def test_the_plain_manifests_are_what_the_chart_renders():
    written = (DEPLOY / "kubernetes/toolscout.yaml").read_text(encoding="utf-8")

    assert written == render(), "Run `make manifests` and commit deploy/kubernetes."


@needs_helm
@pytest.mark.parametrize("options", [(), EVERYTHING], ids=["defaults", "everything"])
def test_what_the_chart_renders_is_valid(options: tuple[str, ...]):
    import kubernetes_validate  # takes two seconds, which every process of the tests would spend

    objects = read_objects(render(*options, name="other"))

    for kind in objects.keys() - OPERATOR_KINDS:
        for version in (SCHEMA, kubernetes_validate.latest_version()):
            kubernetes_validate.validate(objects[kind], version, strict=True)
    assert {"Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy"} <= objects.keys()
    assert ("Ingress" in objects) == ("ServiceMonitor" in objects) == bool(options)
    assert all(one["metadata"]["name"] == "other-toolscout" for one in objects.values())


def test_pods_have_no_rights_that_they_do_not_need():
    spec = read_manifests()["Deployment"]["spec"]["template"]["spec"]
    [container] = spec["containers"]

    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_chart_holds_no_secret_and_refers_to_one():
    objects = read_manifests()
    volumes = objects["Deployment"]["spec"]["template"]["spec"]["volumes"]

    assert "Secret" not in objects
    assert [one["secret"]["secretName"] for one in volumes if "secret" in one] == ["toolscout"]


def test_a_replica_has_time_to_drain_and_to_let_calls_end():
    spec = read_manifests()["Deployment"]["spec"]["template"]["spec"]
    [container] = spec["containers"]
    drain = float(container["lifecycle"]["preStop"]["exec"]["command"][1])

    assert spec["terminationGracePeriodSeconds"] > drain + Config().gateway.stop_seconds


def test_replicas_are_scaled_by_a_metric_that_the_gateway_exports():
    metrics = read_manifests()["HorizontalPodAutoscaler"]["spec"]["metrics"]
    [name] = [one["pods"]["metric"]["name"] for one in metrics if one["type"] == "Pods"]

    assert name in exported_series()


def test_the_chart_has_the_version_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))

    assert chart["version"] == chart["appVersion"] == project["version"]


# One machine


def test_the_compose_file_is_valid():
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    schemas = resources.files("check_jsonschema") / "builtin_schemas" / "vendor"
    schema = json.loads((schemas / "compose-spec.json").read_text(encoding="utf-8"))

    jsonschema_rs.validate(schema, compose)


def test_containers_of_the_compose_file_have_what_the_configuration_refers_to():
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    gateway = compose["services"]["gateway"]
    config = (DEPLOY / "compose/toolscout.toml").read_text(encoding="utf-8")
    used = {Path(path).name for path in _FILE.findall(without_comments(config))}

    assert used == set(gateway["secrets"])
    assert used <= compose["secrets"].keys()
    for part in compose["configs"].values():
        assert (DEPLOY / part["file"]).is_file()
    assert gateway["read_only"] is True
    assert gateway["cap_drop"] == ["ALL"]


@pytest.mark.parametrize("place", ["compose", "chart"])
def test_the_gateway_accepts_the_configuration(place: str, tmp_path: Path):
    text = (DEPLOY / "compose/toolscout.toml").read_text(encoding="utf-8")
    if place == "chart":
        text = read_manifests()["ConfigMap"]["data"]["toolscout.toml"]
    for path in _FILE.findall(text):
        name = Path(path).name
        (tmp_path / name).write_text(f"{name} of at least 24 characters\n", encoding="utf-8")
        text = text.replace(path, str(tmp_path / name))
    file = tmp_path / "toolscout.toml"
    file.write_text(text.replace("[gateway]", '[gateway]\nhost = "0.0.0.0"', 1), encoding="utf-8")

    config = read_config(file)
    access = Authenticator(config.gateway)
    scraper = access.authenticate("Bearer metrics-token of at least 24 characters")

    assert scraper is not None
    assert scraper.reads_metrics
    assert scraper.profile is not None
    assert not any(scraper.profile.admits(name, "x", effect) for name, effect in some_tools())


def test_the_service_starts_the_gateway_with_options_that_exist():
    unit = (DEPLOY / "systemd/toolscout.service").read_text(encoding="utf-8")
    [line] = re.findall(r"^ExecStart=(.+)$", unit, re.MULTILINE)
    program, command, *words = line.split()

    assert (Path(program).name, command) == ("toolscout", "serve")
    serve.make_context("serve", words, resilient_parsing=True)


# Monitoring


def test_every_metric_of_the_dashboard_exists():
    board = json.loads((DEPLOY / "grafana/toolscout.json").read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    queries += [one["definition"] for one in board["templating"]["list"] if "definition" in one]
    asked = {name for query in queries for name in _METRIC.findall(query)}

    assert asked <= exported_series()
    assert not list_families() - {base_name(name) for name in asked}, "not on the dashboard"
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_every_metric_of_the_alert_rules_exists():
    [group] = yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text(encoding="utf-8"))[
        "groups"
    ]
    asked = {name for rule in group["rules"] for name in _METRIC.findall(rule["expr"])}
    phases = {
        one for rule in group["rules"] for one in re.findall(r'phase="([^"]+)"', rule["expr"])
    }

    assert asked <= exported_series()
    assert phases <= set(Phase)


def test_the_operations_page_says_what_to_do_about_every_alert():
    [group] = yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text(encoding="utf-8"))[
        "groups"
    ]
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")

    assert set(re.findall(r"^\| `(Toolscout\w+)` \|", page, re.MULTILINE)) == {
        rule["alert"] for rule in group["rules"]
    }


def exported_series() -> set[str]:
    """Return the names of all series that a gateway on Linux exports."""
    text = build_metrics().render().decode()
    names = set(re.findall(r"^# TYPE (\S+) \S+$", text, re.MULTILINE))
    histograms = re.findall(r"^# TYPE (\S+) histogram$", text, re.MULTILINE)
    names |= {f"{name}_{part}" for name in histograms for part in ("bucket", "count", "sum")}
    names |= {"process_open_fds", "process_max_fds"}
    return names


def list_families() -> set[str]:
    """Return the metrics of toolscout itself, each under one name."""
    return {base_name(name) for name in exported_series() if name.startswith("toolscout_")}


def base_name(name: str) -> str:
    return re.sub(r"_(total|bucket|count|sum|created)$", "", name)


def build_metrics() -> Metrics:
    return Metrics(Gateway(Config(), MemoryStore()))


def some_tools() -> Iterator[tuple[str, Any]]:
    from toolscout.tools import Effect

    yield from (("github", effect) for effect in Effect)


def without_comments(text: str) -> str:
    return re.sub(r"(^|\s)#.*$", "", text, flags=re.MULTILINE)
