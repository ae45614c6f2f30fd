"""Prometheus' rules and Grafana's dashboard, held against promtool and against the metrics of the server."""

import json
import re
from http import HTTPStatus
from pathlib import Path

import yaml

from app.http.problems import TABLE
from app.operations.metrics import HELP
from tests.deploy.files import ALERTING, DEPLOY, RULES, documents, run
from tests.documents.pages import read

PANELS = json.loads(read("deploy/grafana/tickets.json"))["panels"]
SHOWN = [target["expr"] for panel in PANELS for target in panel.get("targets", [])]
"""The expressions of the dashboard."""


def families(expressions: list[str]) -> set[str]:
    """The metrics that are named there, without the endings of counters and histograms."""
    found = {name for expression in expressions for name in re.findall(r"\btickets_[a-z_]+\b", expression)}
    return {name if name in HELP else re.sub("_(total|bucket|sum|count)$", "", name) for name in found}


def test_promtool_accepts_the_configuration_and_every_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    run("promtool", "check", "config", "prometheus/prometheus.yml", package="prometheus")
    (tests,) = documents("prometheus/rules_test.yml")
    # Every second evaluation tells the same, and they are nearly all of its work. The order would be random.
    tests |= {"evaluation_interval": "30s", "group_eval_order": [group["name"] for group in ALERTING["groups"]]}
    tests |= {"rule_files": [str(DEPLOY / "prometheus/rules.yml")]}
    (tmp_path / "rules_test.yml").write_text(yaml.safe_dump(tests), encoding="utf-8")
    # it keeps everything to the end: to look for garbage is a fifth of its work
    run("promtool", "test", "rules", tmp_path / "rules_test.yml", package="prometheus", GOGC="400")


def test_every_alert_is_tested_and_says_what_to_do() -> None:
    tests = read("deploy/prometheus/rules_test.yml")
    for alert in (rule for rule in RULES if "alert" in rule):
        assert f'alertname="{alert["alert"]}"' in tests, f"no test of promtool fires {alert['alert']}"
        assert set(alert["annotations"]) == {"summary", "description", "runbook"}, alert["alert"]
        assert alert["labels"]["severity"] in {"page", "ticket"}, alert["alert"]


def test_rules_and_dashboard_name_metrics_that_there_are_and_leave_none_out() -> None:
    assert families([rule["expr"] for rule in RULES]) <= set(HELP)
    assert families([rule["expr"] for rule in RULES if "record" in rule] + SHOWN) == set(HELP)


def test_the_outcomes_in_the_rules_are_codes_and_every_failure_is_among_them() -> None:
    failures = {code for status, code in TABLE.values() if status >= HTTPStatus.INTERNAL_SERVER_ERROR}
    found = re.findall(r'outcome=(~?)"([^"]+)"', read("deploy/prometheus/rules.yml"))
    assert {code for _, each in found for code in each.split("|")} <= {code for _, code in TABLE.values()} | {"ok"}
    lists = [set(each.split("|")) - {"ok"} for is_list, each in found if is_list]
    assert lists == [failures] * 4


def test_the_dashboard_is_promql(tmp_path: Path) -> None:
    written = []
    for number, expression in enumerate(SHOWN):
        assert set(re.findall(r"\btickets:[a-z0-9_:]+", expression)) <= {rule.get("record") for rule in RULES}
        plain = expression.replace("$__rate_interval", "1m").replace("$job", "tickets").replace("$instance", ".*")
        assert "$" not in plain
        written.append({"record": f"dashboard:{number}", "expr": plain})
    groups = tmp_path / "dashboard.yml"
    groups.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": written}]}), encoding="utf-8")
    run("promtool", "check", "rules", groups, package="prometheus")


def test_the_prometheus_operator_gets_the_same_rules() -> None:
    """How to write them anew: the comment at the top of the file."""
    (given,) = documents("kubernetes/service-monitor/prometheus-rule.yaml")
    assert given["spec"] == ALERTING
