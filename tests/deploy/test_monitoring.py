"""Prometheus' rules and Grafana's dashboard, held against promtool and against the metrics of the server."""

import json
import re
from http import HTTPStatus
from pathlib import Path
from typing import Any

import yaml

from app.http.problems import TABLE
from app.operations.metrics import HELP
from tests.deploy.files import DEPLOY, KUBERNETES, PROMETHEUS, documents, run

SERIES = re.compile(r"\btickets_[a-z_]+\b")


def rules() -> list[dict[str, Any]]:
    """Every rule."""
    (read,) = documents(PROMETHEUS / "rules.yml")
    return [rule for group in read["groups"] for rule in group["rules"]]


def shown() -> list[str]:
    """The expressions of the dashboard."""
    panels = json.loads((DEPLOY / "grafana/tickets.json").read_text(encoding="utf-8"))["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", [])]


def families(expressions: list[str]) -> set[str]:
    """The metrics that are named there, without the endings of counters and histograms."""
    found = {name for expression in expressions for name in SERIES.findall(expression)}
    return {name if name in HELP else re.sub("_(total|bucket|sum|count)$", "", name) for name in found}


def test_promtool_accepts_the_configuration_and_every_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    run("promtool", "check", "config", "prometheus/prometheus.yml", package="prometheus")
    (tests,) = documents(PROMETHEUS / "rules_test.yml")
    (read,) = documents(PROMETHEUS / "rules.yml")
    # Every second evaluation tells the same, and they are nearly all of its work. The order would be random.
    tests |= {"evaluation_interval": "30s", "group_eval_order": [group["name"] for group in read["groups"]]}
    tests |= {"rule_files": [str(PROMETHEUS / "rules.yml")]}
    (tmp_path / "rules_test.yml").write_text(yaml.safe_dump(tests), encoding="utf-8")
    # it keeps everything to the end: to look for garbage is a fifth of its work
    run("promtool", "test", "rules", tmp_path / "rules_test.yml", package="prometheus", GOGC="400")


def test_every_alert_is_tested_and_says_what_to_do() -> None:
    tests = (PROMETHEUS / "rules_test.yml").read_text(encoding="utf-8")
    for alert in (rule for rule in rules() if "alert" in rule):
        assert f'alertname="{alert["alert"]}"' in tests, f"no test of promtool fires {alert['alert']}"
        assert set(alert["annotations"]) == {"summary", "description", "runbook"}, alert["alert"]
        assert alert["labels"]["severity"] in {"page", "ticket"}, alert["alert"]


def test_rules_and_dashboard_name_metrics_that_there_are_and_leave_none_out() -> None:
    recorded = [rule["expr"] for rule in rules() if "record" in rule]
    assert families([rule["expr"] for rule in rules()]) <= set(HELP)
    assert families([*recorded, *shown()]) == set(HELP)


def test_the_outcomes_in_the_rules_are_codes_and_every_failure_is_among_them() -> None:
    text = (PROMETHEUS / "rules.yml").read_text(encoding="utf-8")
    found = {code for each in re.findall(r'outcome=~?"([^"]+)"', text) for code in each.split("|")}
    failures = {code for status, code in TABLE.values() if status >= HTTPStatus.INTERNAL_SERVER_ERROR}
    assert found <= {code for _, code in TABLE.values()} | {"ok"}
    lists = re.findall(r'outcome=~"([^"]+)"', text)
    assert len(lists) == 4
    assert all(set(each.split("|")) - {"ok"} == failures for each in lists)


def test_the_dashboard_is_promql(tmp_path: Path) -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    written = []
    for number, expression in enumerate(shown()):
        assert set(re.findall(r"\btickets:[a-z0-9_:]+", expression)) <= recorded
        plain = expression.replace("$__rate_interval", "1m").replace("$job", "tickets").replace("$instance", ".*")
        assert "$" not in plain
        written.append({"record": f"dashboard:{number}", "expr": plain})
    groups = tmp_path / "dashboard.yml"
    groups.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": written}]}), encoding="utf-8")
    run("promtool", "check", "rules", groups, package="prometheus")


def test_the_prometheus_operator_gets_the_same_rules() -> None:
    path = KUBERNETES / "service-monitor/prometheus-rule.yaml"
    (given,) = documents(path)
    assert given["spec"] == yaml.safe_load((PROMETHEUS / "rules.yml").read_text(encoding="utf-8")), (
        f"how to write it anew: the comment at the top of {path}"
    )
