"""Every deployment sets what the ticket server knows, to values that it can use."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from app import settings
from app.setting_names import FILE, variable
from app.version import VERSION
from tests.deploy.files import DEPLOY, KUBERNETES, ROOT, compose, documents, resources, variables

KNOWN = {variable(field) + ending for field in settings.Settings.model_fields for ending in ("", FILE)}
DEPLOYED = "deploy", "mysql_init", "Dockerfile", "docker-compose.yml"
SERVERS = ["tickets-1", "tickets-2", "tickets-3"]


def deployments() -> Iterator[tuple[str, Mapping[str, str]]]:
    """The variables of a ticket server in each deployment, and the names of the deployments."""
    image = variables(re.findall(r"(TICKETS_\w+=\S+)", (ROOT / "Dockerfile").read_text(encoding="utf-8")))
    yield "compose", image | variables(compose()["services"]["tickets-1"]["environment"])
    (base,) = documents(KUBERNETES / "kustomization.yaml")
    (container,) = resources()["Deployment"]["spec"]["template"]["spec"]["containers"]
    pod = {each["name"]: each["value"] for each in container["env"]}
    yield "kubernetes", image | variables(base["configMapGenerator"][0]["literals"]) | variables(pod)
    unit, shared = ((DEPLOY / "systemd" / name).read_text("utf-8") for name in ("ticketd@.service", "ticketd.env"))
    lines = re.findall(r"^(?:Environment=)?(TICKETS_\w+=.*)$", f"{unit}\n{shared}", re.MULTILINE)
    yield "systemd", {name: re.sub("%.", "8001", value.strip('"')) for name, value in variables(lines).items()}


def test_the_server_can_use_what_is_set(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a-secret\n", encoding="utf-8")
    for name, environment in deployments():
        files = {each: str(tmp_path / "secret") for each in environment if each.endswith(FILE)}
        assert len(files) >= 2, name
        loaded = settings.load({**environment, **files}, {})
        assert len(loaded.databases) == 2, name
        assert loaded.redis_port, name
        assert loaded.admin_tokens, name


def test_the_third_databases_of_compose_are_taken() -> None:
    text = (ROOT / "docs/operations/compose.md").read_text(encoding="utf-8")
    urls = re.findall(r"postgresql://tickets@[^\s\"]+|rediss://tickets@[^\s`]+", text)
    assert [url.split("@")[1].split("/")[0].split(":")[0] for url in urls] == ["postgresql", "redis"]
    assert (
        len(settings.load({"TICKETS_DATABASES": " ".join(urls), "TICKETS_DATABASE_PASSWORD": "x"}, {}).databases) == 2
    )
    assert {"postgresql", "redis"} <= compose()["services"].keys()


def test_every_variable_is_a_setting_or_is_named_as_the_deployments() -> None:
    listed = ["git", "ls-files", "-co", "--exclude-standard", *DEPLOYED]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True, timeout=30).stdout.split()
    assert len(names) > 20
    for path in (ROOT / name for name in names if (ROOT / name).exists()):
        found = set(re.findall(r"\bTICKETS_[A-Z0-9_]+", path.read_text(encoding="utf-8")))
        assert {each for each in found - KNOWN if not each.startswith("TICKETS_DEPLOY_")} == set(), path


def test_every_deployment_has_this_version() -> None:
    services = compose()["services"]
    assert {services[name]["image"] for name in [*SERVERS, "certificates"]} == {f"ticket-server:{VERSION}"}
    assert documents(KUBERNETES / "kustomization.yaml")[0]["images"][0]["newTag"] == VERSION


def test_a_stop_leaves_time_to_drain() -> None:
    defaults = settings.load({}, {})
    needed = defaults.drain_seconds + defaults.request_timeout
    for name in SERVERS:
        assert int(compose()["services"][name]["stop_grace_period"].rstrip("s")) > needed
    unit = (DEPLOY / "systemd/ticketd@.service").read_text(encoding="utf-8")
    assert int(re.findall(r"^TimeoutStopSec=(\d+)s$", unit, re.MULTILINE)[0]) > needed
    pod = resources()["Deployment"]["spec"]["template"]["spec"]
    before = int(pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > before + needed


def test_the_server_starts_under_a_uid_without_a_name() -> None:
    """A container's uid has no entry in the list of users, and Python 3.13 says so with an OSError."""
    program = "import pwd; pwd.getpwuid = lambda uid: open('no such user'); from app.databases.mysql import login"
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(settings.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=60)
