"""Each file of deploy/ is held against its own tool, and against what it has to agree with."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.operations import metrics
from tests.documents import pages
from tests.harness.schema import LEAST_PRIVILEGES

REPOSITORY = Path(__file__).resolve().parents[2]
DEPLOY = REPOSITORY / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
PROMETHEUS_RULE = KUBERNETES / "service-monitor/prometheus-rule.yaml"


def run(*command: str | Path, package: str = "", environment: dict[str, str] | None = None) -> str:
    """What the tool says, on both streams; a tool that is missing or unhappy fails the test."""
    tool = shutil.which(str(command[0]))
    assert tool, f"{command[0]} is missing: make test installs it, or apt-get install {package or command[0]}"
    done = subprocess.run(
        [tool, *command[1:]],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        cwd=DEPLOY,
        env=os.environ | (environment or {}),
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]


def compose() -> dict[str, Any]:
    return documents(REPOSITORY / "docker-compose.yml")[0]


def with_defaults(text: str) -> str:
    """With the defaults of Compose's `${NAME:-default}`."""
    return re.sub(r"\$\{\w+:?-([^}]*)\}", r"\1", text)


# -- Prometheus and Grafana


def declared_series() -> set[str]:
    """Every series name of `/metrics`."""
    histograms = {name + suffix for name in metrics.HISTOGRAMS for suffix in ("_bucket", "_sum", "_count")}
    return {name + "_total" for name in metrics.COUNTERS} | set(metrics.GAUGES) | histograms


def rules() -> list[dict[str, Any]]:
    return [rule for group in documents(DEPLOY / "prometheus/rules.yml")[0]["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    board: dict[str, Any] = json.loads((DEPLOY / "grafana/tickets.json").read_text(encoding="utf-8"))
    return board


def dashboard_expressions() -> list[str]:
    return [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", [])]


def named_series(expression: str) -> set[str]:
    return set(re.findall(r"\btickets_[a-z_]+\b", expression))


def test_prometheus_reads_its_configuration_and_the_rules() -> None:
    run("promtool", "check", "config", "prometheus/prometheus.yml", package="prometheus")


def test_every_alert_fires_when_it_should_and_only_then() -> None:
    # it keeps everything to the end: to look for garbage is a fifth of its work
    run("promtool", "test", "rules", "prometheus/rules_test.yml", package="prometheus", environment={"GOGC": "400"})


def test_every_alert_is_tested_and_says_what_to_do() -> None:
    tests = (DEPLOY / "prometheus/rules_test.yml").read_text(encoding="utf-8")
    alerts = [rule for rule in rules() if "alert" in rule]
    assert len(alerts) >= 9
    for alert in alerts:
        assert f'alertname="{alert["alert"]}"' in tests, f"no promtool test fires {alert['alert']}"
        assert set(alert["annotations"]) == {"summary", "description", "runbook"}, alert["alert"]
        assert alert["labels"]["severity"] in {"page", "ticket"}, alert["alert"]


def test_rules_and_dashboard_name_declared_metrics_alone() -> None:
    declared = declared_series()
    for expression in [*(rule["expr"] for rule in rules()), *dashboard_expressions()]:
        assert named_series(expression) <= declared, expression


def test_the_dashboard_shows_every_declared_metric() -> None:
    shown = set().union(*map(named_series, dashboard_expressions()))
    families = set(metrics.COUNTERS) | set(metrics.GAUGES) | set(metrics.HISTOGRAMS)
    recorded = set().union(*(named_series(rule["expr"]) for rule in rules() if "record" in rule))
    assert not [name for name in families if not any(each.startswith(name) for each in shown | recorded)]


def test_the_dashboards_expressions_are_promql(tmp_path: Path) -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    written = []
    for number, expression in enumerate(dashboard_expressions()):
        assert set(re.findall(r"\btickets:[a-z0-9_:]+", expression)) <= recorded
        plain = expression.replace("$__rate_interval", "1m").replace("$job", "tickets").replace("$instance", ".*")
        assert "$" not in plain, expression
        written.append({"record": f"dashboard:{number}", "expr": plain})
    rules_file = tmp_path / "dashboard.yml"
    rules_file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": written}]}), encoding="utf-8")
    run("promtool", "check", "rules", rules_file, package="prometheus")


def test_the_dashboard_is_the_same_one_everywhere() -> None:
    board = dashboard()
    assert board["uid"] == "ticket-server"
    assert board["templating"]["list"][0]["type"] == "datasource"
    for panel in board["panels"]:
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}", panel["title"]
            assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"]), panel["title"]
    numbers = [panel["id"] for panel in board["panels"]]
    assert len(numbers) == len(set(numbers))


def test_grafana_finds_the_dashboard_and_prometheus() -> None:
    grafana = compose()["services"]["grafana"]
    mounted = dict(volume.split(":")[:2] for volume in grafana["volumes"])
    assert mounted["./deploy/grafana/tickets.json"].startswith(
        documents(DEPLOY / "grafana/provisioning/dashboards/tickets.yml")[0]["providers"][0]["options"]["path"]
    )
    source = documents(DEPLOY / "grafana/provisioning/datasources/prometheus.yml")[0]["datasources"][0]
    assert source["url"] == "http://prometheus:9090"


# -- HAProxy


def test_haproxy_accepts_its_configuration(certificates: Path) -> None:
    environment = dict(
        line.split("=") for line in pages.block("docs/operations/haproxy.md", "TICKETS_1=").splitlines()
    )  # names would have to resolve
    assert environment["TICKETS_CERTIFICATE"] == "/etc/haproxy/tickets.pem"
    with_tls = environment | {"TICKETS_CERTIFICATE": str(certificates / "front/bundle.pem")}
    without_tls = {name: value for name, value in environment.items() if re.fullmatch(r"TICKETS_\d", name)}
    redis = {name: value for name, value in environment.items() if "REDIS" in name}
    assert len(redis) == 4
    for each in (with_tls, without_tls, without_tls | redis):
        said = run("haproxy", "-c", "-f", "haproxy/haproxy.cfg", environment=each)
        assert "WARNING" not in said, said


# -- systemd


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit, with a program that is there on this machine."""
    text = (DEPLOY / "systemd/ticketd@.service").read_text(encoding="utf-8")
    path = tmp_path / "ticketd@.service"
    path.write_text(text.replace("/opt/ticketd/bin/ticketd", sys.executable), encoding="utf-8")
    return path


def test_systemd_knows_every_line_of_the_unit(unit: Path) -> None:
    # An unknown key is a warning only; so nothing at all may be said about the unit.
    said = run("systemd-analyze", "verify", unit, package="systemd")
    assert not [line for line in said.splitlines() if "ticketd" in line], said


def test_the_unit_is_hardened(unit: Path) -> None:
    run("systemd-analyze", "security", "--offline=yes", "--threshold=20", "--no-pager", unit, package="systemd")


# -- Kubernetes


def listed(kustomization: Path) -> list[Path]:
    return [kustomization.parent / name for name in documents(kustomization)[0]["resources"]]


def resources() -> Iterator[dict[str, Any]]:
    for path in listed(KUBERNETES / "kustomization.yaml"):
        yield from documents(path)


def deployment() -> dict[str, Any]:
    return next(each for each in resources() if each["kind"] == "Deployment")


def test_kubernetes_accepts_every_resource() -> None:
    tool = Path(sys.executable).parent / "kubernetes-validate"
    run(tool, "--strict", *listed(KUBERNETES / "kustomization.yaml"))


def test_every_resource_is_listed() -> None:
    for kustomization in KUBERNETES.rglob("kustomization.yaml"):
        there = {path for path in kustomization.parent.glob("*.yaml") if path != kustomization}
        assert set(listed(kustomization)) == there


def prometheus_rule() -> dict[str, Any]:
    (document,) = documents(PROMETHEUS_RULE)
    return document


def test_the_prometheus_operator_is_given_the_rules_that_are_tested() -> None:
    document = prometheus_rule()
    assert (document["apiVersion"], document["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    tested = documents(DEPLOY / "prometheus/rules.yml")[0]
    assert document["spec"] == tested, f"how to write it anew: the comment at the top of {PROMETHEUS_RULE}"


def test_the_prometheus_operator_can_read_its_rules(tmp_path: Path) -> None:
    """No schema of its kinds is at hand: promtool knows the rules, and around them there are few fields."""
    document = prometheus_rule()
    assert document.keys() == {"apiVersion", "kind", "metadata", "spec"}
    assert document["spec"].keys() == {"groups"}
    extracted = tmp_path / "groups.yml"
    extracted.write_text(yaml.safe_dump(document["spec"]), encoding="utf-8")
    said = run("promtool", "check", "rules", "--lint-fatal", extracted, package="prometheus")
    assert f"{len(rules())} rules found" in said
    for rule in (rule for group in document["spec"]["groups"] for rule in group["rules"]):
        texts = {**rule.get("labels", {}), **rule.get("annotations", {}), "expr": rule["expr"]}
        assert all(isinstance(text, str) for text in texts.values()), rule  # the cluster refuses a number here


def test_the_comment_in_the_prometheus_rule_says_how_it_is_written_anew(tmp_path: Path) -> None:
    folder = tmp_path / "kubernetes/service-monitor"
    shutil.copytree(PROMETHEUS_RULE.parent, folder)
    changed = (DEPLOY / "prometheus/rules.yml").read_text(encoding="utf-8").replace("for: 1m", "for: 7m")
    (tmp_path / "prometheus").mkdir()
    (tmp_path / "prometheus/rules.yml").write_text(changed, encoding="utf-8")
    script = "".join(re.findall(r"^#   (.*\n)", PROMETHEUS_RULE.read_text(encoding="utf-8"), re.MULTILINE))
    pages.run(script, folder)
    written = documents(folder / PROMETHEUS_RULE.name)[0]
    assert written["spec"] == yaml.safe_load(changed) != prometheus_rule()["spec"]
    assert written["metadata"] == prometheus_rule()["metadata"]


def test_a_pod_is_given_the_time_it_takes_to_drain() -> None:
    pod = deployment()["spec"]["template"]["spec"]
    container = pod["containers"][0]
    drain = next(int(each["value"]) for each in container["env"] if each["name"] == "TICKETS_DRAIN_SECONDS")
    before = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    readiness = container["readinessProbe"]
    request_timeout = 2
    assert pod["terminationGracePeriodSeconds"] > before + drain + request_timeout
    assert drain > readiness["periodSeconds"] * readiness["failureThreshold"]
    assert pod["enableServiceLinks"] is False


def test_resources_select_the_pods() -> None:
    labels = deployment()["spec"]["template"]["metadata"]["labels"]
    for each in resources():
        selector = each["spec"].get("selector") or each["spec"].get("podSelector")
        assert selector.get("matchLabels", selector).items() <= labels.items(), each["kind"]


def test_the_redis_protocol_has_one_port_in_pods_policy_and_service() -> None:
    by_kind = {each["kind"]: each["spec"] for each in resources()}
    container = by_kind["Deployment"]["template"]["spec"]["containers"][0]
    set_to = next(each["value"] for each in container["env"] if each["name"] == "TICKETS_REDIS_PORT")
    assert {"name": "redis", "containerPort": int(set_to)} in container["ports"]
    assert {"name": "redis", "port": 6379, "targetPort": "redis"} in by_kind["Service"]["ports"]
    rules = by_kind["NetworkPolicy"]["ingress"]
    admitted = [rule["from"] for rule in rules if {"protocol": "TCP", "port": "redis"} in rule["ports"]]
    assert [[list(peer) for peer in peers] for peers in admitted] == [[["namespaceSelector", "podSelector"]]]


# -- Compose, MySQL


def test_haproxy_finds_the_redis_protocol_where_compose_has_it() -> None:
    services = compose()["services"]
    configuration = (DEPLOY / "haproxy/haproxy.cfg").read_text(encoding="utf-8")
    for name in ("tickets-1", "tickets-2", "tickets-3"):
        address = f"{name}:{services[name]['environment']['TICKETS_REDIS_PORT']}"
        assert re.search(rf'server {name} "\$\{{TICKETS_\d_REDIS-{address}\}}"\n', configuration)
        assert f"return status 200 if {{ path /{name} }} {{ srv_is_up(ticket-servers/{name}) }}" in configuration
    published = [port.rpartition(":")[2] for port in services["haproxy"]["ports"]]
    assert services["haproxy"]["environment"]["TICKETS_FRONT_REDIS"].strip(":") in published
    assert re.findall(r"TICKETS_FRONT_REDIS_TLS-:(\d+)", configuration)[0] in published


def test_each_instance_of_the_unit_has_a_port_of_its_own_for_the_redis_protocol() -> None:
    unit = (DEPLOY / "systemd/ticketd@.service").read_text(encoding="utf-8")
    instances = re.findall(
        r"ticketd@(\d+)", pages.block("docs/operations/systemd.md", "install -d -m 0755 /etc/ticketd")
    )
    (port,) = re.findall(r"^Environment=TICKETS_REDIS_PORT=(.*)$", unit, re.MULTILINE)
    ports = [port.replace("%i", each) for each in instances]
    assert f"TICKETS_1_REDIS=127.0.0.1:{ports[0]}\nTICKETS_2_REDIS=127.0.0.1:{ports[1]}\n" in pages.block(
        "docs/operations/haproxy.md", "TICKETS_1="
    )


def test_nothing_is_published_beyond_this_machine() -> None:
    for name, service in compose()["services"].items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name


def test_what_is_mounted_is_there() -> None:
    described = compose()
    sources = [with_defaults(each["file"]) for each in described["secrets"].values()]
    for service in described["services"].values():
        sources += [volume.split(":")[0] for volume in service.get("volumes", []) if volume.startswith("./")]
    assert sources
    assert not [source for source in sources if not (REPOSITORY / source).exists()]


def test_development_passwords_say_that_they_are() -> None:
    committed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "deploy/secrets"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    ).stdout.split()
    files = [REPOSITORY / name for name in committed if not name.endswith("README.md")]
    assert {REPOSITORY / with_defaults(each["file"]) for each in compose()["secrets"].values()} <= set(files)
    assert all(path.read_text(encoding="utf-8").startswith("development-only-") for path in files)


def test_the_databases_differ_by_their_offset_alone() -> None:
    odd, even = (
        [line for line in (DEPLOY / f"mysql/{name}.cnf").read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
        for name in ("odd", "even")
    )
    different = [pair for pair in zip(odd, even, strict=True) if pair[0] != pair[1]]
    assert different == [("auto_increment_offset    = 1", "auto_increment_offset    = 2")]
    assert {"auto_increment_increment = 2", "innodb_flush_log_at_trx_commit = 1", "sync_binlog = 1"} <= set(odd)


def test_the_application_user_has_the_least_privileges() -> None:
    script = (DEPLOY / "mysql/02-application-user.sh").read_text(encoding="utf-8")
    granted = re.findall(r"^GRANT (.*) ON \\`\$MYSQL_DATABASE\\`\.\* TO", script, re.MULTILINE)
    assert [set(each.split(", ")) for each in granted] == [set(LEAST_PRIVILEGES.split(", "))]


def test_a_stop_leaves_time_to_drain() -> None:
    services = compose()["services"]
    drain, request_timeout = 5, 2
    for name in ("tickets-1", "tickets-2", "tickets-3"):
        assert int(services[name]["stop_grace_period"].rstrip("s")) > drain + request_timeout
    unit = (DEPLOY / "systemd/ticketd@.service").read_text(encoding="utf-8")
    assert int(re.findall(r"^TimeoutStopSec=(\d+)s$", unit, re.MULTILINE)[0]) > drain + request_timeout


# -- the requirements


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-image.txt", "requirements-test.txt"])
def test_requirements_are_locked_and_name_no_address(name: str) -> None:
    text = (REPOSITORY / name).read_text(encoding="utf-8")
    assert not re.search(r"https?://|file:|--(extra-)?index-url|--find-links|--trusted-host", text)
    for requirement in re.split(r"\n(?=[a-z])", text.partition("\n")[2]):
        assert re.match(r"[a-z0-9-]+==\S+ .*\\\n", requirement), requirement.splitlines()[0]
        assert "--hash=sha256:" in requirement, requirement.splitlines()[0]


def test_what_the_server_runs_on_is_what_the_tests_run_on() -> None:
    pins = [
        set(re.findall(r"^([a-z0-9-]+==\S+)", (REPOSITORY / name).read_text(encoding="utf-8"), re.MULTILINE))
        for name in ("requirements.txt", "requirements-image.txt", "requirements-test.txt")
    ]
    assert pins[0] < pins[1] < pins[2]
    assert {pin.partition("==")[0] for pin in pins[1] - pins[0]} == {"asyncpg"}, "what `make run` does without"
