"""The files of the deployments, and the tools that read them."""

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.servers_programs import find

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PROMETHEUS, KUBERNETES = DEPLOY / "prometheus", DEPLOY / "kubernetes"


def run(tool: str, *arguments: str | Path, package: str = "", **environment: str) -> str:
    """Run a tool in deploy/ without an error, and return what it said on both streams. package: Debian's, with it."""
    command, variables = [find(tool, package or tool), *arguments], os.environ | environment
    done = subprocess.run(command, cwd=DEPLOY, env=variables, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def documents(path: Path) -> list[dict[str, Any]]:
    """Return the YAML documents of a file."""
    return [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each]


def compose() -> dict[str, Any]:
    """Return docker-compose.yml, with the defaults of its variables, as in `${NAME-default}`."""
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    read: dict[str, Any] = yaml.safe_load(re.sub(r"\$\{\w+:?-([^}]*)\}", r"\1", text))
    return read


def resources() -> dict[str, dict[str, Any]]:
    """Return the resources of the Kubernetes base, by their kinds."""
    (base,) = documents(KUBERNETES / "kustomization.yaml")
    return {each["kind"]: each for name in base["resources"] for each in documents(KUBERNETES / name)}


def variables(environment: Mapping[str, object] | list[str]) -> dict[str, str]:
    """Return the variables that begin with TICKETS_, of a mapping or of a list of NAME=value."""
    pairs = environment.items() if isinstance(environment, Mapping) else (each.split("=", 1) for each in environment)
    return {name: str(value) for name, value in pairs if name.startswith("TICKETS_")}
