"""The files of the deployments, and the tools that read them."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.documents.pages import ROOT, read
from tests.servers_programs import find

DEPLOY = ROOT / "deploy"


def run(tool: str, *arguments: str | Path, package: str = "", **environment: str) -> str:
    """Run a tool in deploy/ without an error, and return what it said on both streams. package: Debian's, with it."""
    command, variables = [find(tool, package or tool), *arguments], os.environ | environment
    done = subprocess.run(command, cwd=DEPLOY, env=variables, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def documents(path: str) -> list[dict[str, Any]]:
    """Return the YAML documents of a file in deploy/."""
    return [each for each in yaml.safe_load_all(read(f"deploy/{path}")) if each]


COMPOSE: dict[str, Any] = yaml.safe_load(re.sub(r"\$\{\w+:?-([^}]*)\}", r"\1", read("docker-compose.yml")))
"""docker-compose.yml, with the defaults of its variables, as in `${NAME-default}`."""
SERVICES = COMPOSE["services"]
SERVERS = ["tickets-1", "tickets-2", "tickets-3"]
(BASE,) = documents("kubernetes/kustomization.yaml")
RESOURCES = {each["kind"]: each for name in BASE["resources"] for each in documents(f"kubernetes/{name}")}
"""The resources of the Kubernetes base, by their kinds."""
POD = RESOURCES["Deployment"]["spec"]["template"]
(CONTAINER,) = POD["spec"]["containers"]
UNIT = read("deploy/systemd/ticketd@.service")
(ALERTING,) = documents("prometheus/rules.yml")
RULES = [rule for group in ALERTING["groups"] for rule in group["rules"]]
"""Prometheus' rules."""
