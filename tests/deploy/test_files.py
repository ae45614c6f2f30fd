"""Each other file of the deployments, held against the tool that reads it and against the files beside it."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from app import settings
from app.settings import FILE
from app.version import VERSION
from tests.deploy.files import DEPLOY, KUBERNETES, ROOT, compose, documents, resources, run, variables
from tests.servers import Engine, engines
from tests.servers_shared import FreshDatabase, SharedServers
from tests.ticketd import TicketServer

SERVERS = ["tickets-1", "tickets-2", "tickets-3"]


def test_systemd_knows_every_line_of_the_unit_and_finds_it_hardened(tmp_path: Path) -> None:
    unit = tmp_path / "ticketd@.service"
    text = (DEPLOY / "systemd/ticketd@.service").read_text(encoding="utf-8")
    unit.write_text(text.replace("/opt/ticketd/bin/ticketd", sys.executable), encoding="utf-8")
    said = run("systemd-analyze", "verify", unit, package="systemd")
    assert [line for line in said.splitlines() if "ticketd" in line] == []  # about an unknown line it only warns
    run("systemd-analyze", "security", "--offline=yes", "--threshold=20", "--no-pager", unit, package="systemd")


def test_kubernetes_accepts_every_resource() -> None:
    (base,) = documents(KUBERNETES / "kustomization.yaml")
    run("kubernetes-validate", "--strict", *(KUBERNETES / name for name in base["resources"]))
    for kustomization in KUBERNETES.rglob("kustomization.yaml"):
        there = {path.name for path in kustomization.parent.glob("*.yaml")} - {kustomization.name}
        assert set(documents(kustomization)[0]["resources"]) == there


def test_the_resources_select_the_pods_and_agree_on_ports() -> None:
    found = resources()
    template = found["Deployment"]["spec"]["template"]
    for kind, each in found.items():
        selector = each["spec"].get("selector") or each["spec"].get("podSelector")
        assert selector.get("matchLabels", selector).items() <= template["metadata"]["labels"].items(), kind
    (container,) = template["spec"]["containers"]
    names = {each["name"] for each in container["ports"]}
    assert {each["targetPort"] for each in found["Service"]["spec"]["ports"]} == names
    assert {port["port"] for rule in found["NetworkPolicy"]["spec"]["ingress"] for port in rule["ports"]} == names
    (redis,) = (each["value"] for each in container["env"] if each["name"] == "TICKETS_REDIS_PORT")
    assert {"name": "redis", "containerPort": int(redis)} in container["ports"]
    assert template["spec"]["enableServiceLinks"] is False


def test_haproxy_accepts_its_configuration_and_finds_the_servers_of_compose() -> None:
    local = {f"TICKETS_DEPLOY_{number}{kind}": f"127.0.0.1:{number}" for number in (1, 2, 3) for kind in ("", "_REDIS")}
    said = run("haproxy", "-c", "-f", "haproxy/haproxy.cfg", TICKETS_DEPLOY_FRONT_REDIS="127.0.0.1:4", **local)
    assert "WARNING" not in said
    text = (DEPLOY / "haproxy/haproxy.cfg").read_text(encoding="utf-8")
    services = compose()["services"]
    redis = services["tickets-1"]["environment"]["TICKETS_REDIS_PORT"]
    for number, name in enumerate(SERVERS, 1):
        assert f'server {name} "${{TICKETS_DEPLOY_{number}-{name}:8000}}"\n' in text
        assert f'server {name} "${{TICKETS_DEPLOY_{number}_REDIS-{name}:{redis}}}"\n' in text
        assert f"return status 200 if {{ path /{name} }} {{ srv_is_up(ticket-servers/{name}) }}" in text
    listened = {services["haproxy"]["environment"]["TICKETS_DEPLOY_FRONT_REDIS"].strip(":")}
    listened |= set(re.findall(r"\$\{TICKETS_DEPLOY_\w+-:(\d+)\}", text))
    assert {port.rpartition(":")[2] for port in services["haproxy"]["ports"]} == listened


def test_compose_mounts_what_is_there_and_publishes_to_this_machine_alone() -> None:
    files = [each["file"] for each in compose()["secrets"].values()]
    assert all((ROOT / each).read_text(encoding="utf-8").startswith("development-only-") for each in files)
    for name, service in compose()["services"].items():
        files += [volume.split(":")[0] for volume in service.get("volumes", []) if volume.startswith("./")]
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        assert service["cap_drop"] == ["ALL"]
    assert [each for each in files if not (ROOT / each).exists()] == []


def test_the_two_databases_differ_by_their_offset_alone() -> None:
    odd, even = (
        [line for line in (DEPLOY / f"mysql/{name}.cnf").read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
        for name in ("odd", "even")
    )
    different = [pair for pair in zip(odd, even, strict=True) if pair[0] != pair[1]]
    assert different == [("auto_increment_offset    = 1", "auto_increment_offset    = 2")]
    assert {"auto_increment_increment = 2", "innodb_flush_log_at_trx_commit = 1", "sync_binlog = 1"} <= set(odd)


SEQUENCES = ["accounts", "groups", "offline_tasks", "photos", "Tickets32", "Tickets64"]


@pytest.mark.parametrize("engine", engines("mariadb", "mysql"))
def test_the_first_tables_are_made_once_and_served(
    engine: Engine, fresh_database: FreshDatabase, shared_servers: SharedServers
) -> None:
    url = fresh_database(engine, offset=1, increment=1)
    server, database = shared_servers.server(engine, offset=1, increment=1), url.rpartition("/")[2]
    (script,) = (ROOT / "mysql_init").glob("*.sql")
    statements = re.sub(r"--.*", "", script.read_text(encoding="utf-8")).split(";")
    for _ in range(2):
        for statement in filter(str.strip, statements):
            server.execute(statement, database)
        server.execute("REPLACE INTO photos (stub) VALUES ('a')", database)
    with TicketServer([url]) as served:
        assert [each["sequence"] for each in served.get("/sequence").json()["sequences"]] == SEQUENCES
        assert served.take("photos") > [2]
        assert [*served.take("groups"), *served.take("Tickets32")] == [1, 1]
        assert [each for each in served.health()["warnings"] if each["sequence"]] == []


# --- what they set for the ticket server


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
    loaded = settings.load({"TICKETS_DATABASES": " ".join(urls), "TICKETS_DATABASE_PASSWORD": "x"}, {})
    assert len(loaded.databases) == 2
    assert {"postgresql", "redis"} <= compose()["services"].keys()


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
