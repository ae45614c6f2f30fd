"""Each other file of the deployments, held against the tool that reads it and against the files beside it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from app import settings
from app.settings import FILE
from app.version import VERSION
from tests.deploy.files import BASE, COMPOSE, CONTAINER, DEPLOY, POD, RESOURCES, SERVERS, SERVICES, UNIT, run
from tests.documents.pages import ROOT, read
from tests.servers import Engine, engines
from tests.servers_shared import FreshDatabase, SharedServers
from tests.ticketd import TicketServer


def test_systemd_knows_every_line_of_the_unit_and_finds_it_hardened(tmp_path: Path) -> None:
    unit = tmp_path / "ticketd@.service"
    unit.write_text(UNIT.replace("/opt/ticketd/bin/ticketd", sys.executable), encoding="utf-8")
    said = run("systemd-analyze", "verify", unit, package="systemd")
    assert [line for line in said.splitlines() if "ticketd" in line] == []  # about an unknown line it only warns
    run("systemd-analyze", "security", "--offline=yes", "--threshold=20", "--no-pager", unit, package="systemd")


def test_kubernetes_accepts_every_resource() -> None:
    run("kubernetes-validate", "--strict", *(f"kubernetes/{name}" for name in BASE["resources"]))
    for kustomization in DEPLOY.rglob("kustomization.yaml"):
        there = {path.name for path in kustomization.parent.glob("*.yaml")} - {kustomization.name}
        assert set(yaml.safe_load(kustomization.read_text(encoding="utf-8"))["resources"]) == there


def test_the_resources_select_the_pods_and_agree_on_ports() -> None:
    for kind, each in RESOURCES.items():
        selector = each["spec"].get("selector") or each["spec"].get("podSelector")
        assert selector.get("matchLabels", selector).items() <= POD["metadata"]["labels"].items(), kind
    names = {each["name"] for each in CONTAINER["ports"]}
    assert {each["targetPort"] for each in RESOURCES["Service"]["spec"]["ports"]} == names
    assert {port["port"] for rule in RESOURCES["NetworkPolicy"]["spec"]["ingress"] for port in rule["ports"]} == names
    (redis,) = (each["value"] for each in CONTAINER["env"] if each["name"] == "TICKETS_REDIS_PORT")
    assert {"name": "redis", "containerPort": int(redis)} in CONTAINER["ports"]
    assert POD["spec"]["enableServiceLinks"] is False


def test_haproxy_accepts_its_configuration_and_finds_the_servers_of_compose() -> None:
    local = {f"TICKETS_DEPLOY_{number}{kind}": f"127.0.0.1:{number}" for number in (1, 2, 3) for kind in ("", "_REDIS")}
    said = run("haproxy", "-c", "-f", "haproxy/haproxy.cfg", TICKETS_DEPLOY_FRONT_REDIS="127.0.0.1:4", **local)
    assert "WARNING" not in said
    text = read("deploy/haproxy/haproxy.cfg")
    redis = SERVICES["tickets-1"]["environment"]["TICKETS_REDIS_PORT"]
    for number, name in enumerate(SERVERS, 1):
        assert f'server {name} "${{TICKETS_DEPLOY_{number}-{name}:8000}}"\n' in text
        assert f'server {name} "${{TICKETS_DEPLOY_{number}_REDIS-{name}:{redis}}}"\n' in text
        assert f"return status 200 if {{ path /{name} }} {{ srv_is_up(ticket-servers/{name}) }}" in text
    listened = {SERVICES["haproxy"]["environment"]["TICKETS_DEPLOY_FRONT_REDIS"].strip(":")}
    listened |= set(re.findall(r"\$\{TICKETS_DEPLOY_\w+-:(\d+)\}", text))
    assert {port.rpartition(":")[2] for port in SERVICES["haproxy"]["ports"]} == listened


def test_compose_mounts_what_is_there_and_publishes_to_this_machine_alone() -> None:
    files = [each["file"] for each in COMPOSE["secrets"].values()]
    assert all(read(each).startswith("development-only-") for each in files)
    for name, service in SERVICES.items():
        files += [volume.split(":")[0] for volume in service.get("volumes", []) if volume.startswith("./")]
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        assert service["cap_drop"] == ["ALL"]
    assert [each for each in files if not (ROOT / each).exists()] == []


def test_the_two_databases_differ_by_their_offset_alone() -> None:
    odd, even = (
        [line for line in read(f"deploy/mysql/{name}.cnf").splitlines() if line[:1] != "#"] for name in ("odd", "even")
    )
    different = [pair for pair in zip(odd, even, strict=True) if pair[0] != pair[1]]
    assert different == [("auto_increment_offset    = 1", "auto_increment_offset    = 2")]
    assert {"auto_increment_increment = 2", "innodb_flush_log_at_trx_commit = 1", "sync_binlog = 1"} <= set(odd)


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
        names = [each["sequence"] for each in served.get("/sequence").json()["sequences"]]
        assert names == ["accounts", "groups", "offline_tasks", "photos", "Tickets32", "Tickets64"]
        assert served.take("photos") > [2]
        assert [*served.take("groups"), *served.take("Tickets32")] == [1, 1]
        assert [each for each in served.health()["warnings"] if each["sequence"]] == []


IN_IMAGE = dict(re.findall(r"(TICKETS_\w+)=(\S+)", read("Dockerfile")))
UNITS = re.findall(
    r"^(?:Environment=)?(TICKETS_\w+)=\"?(.*?)\"?$", f"{UNIT}\n{read('deploy/systemd/ticketd.env')}", re.MULTILINE
)
DEPLOYMENTS = {
    "compose": IN_IMAGE | SERVICES["tickets-1"]["environment"],
    "kubernetes": IN_IMAGE
    | dict(each.split("=", 1) for each in BASE["configMapGenerator"][0]["literals"])
    | {each["name"]: each["value"] for each in CONTAINER["env"]},
    "systemd": {name: re.sub("%.", "8001", value) for name, value in UNITS},
}
"""The variables of a ticket server in each deployment."""


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_the_server_can_use_what_is_set(name: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a-secret\n", encoding="utf-8")
    set_ = {each: str(value) for each, value in DEPLOYMENTS[name].items() if each.startswith("TICKETS_")}
    files = {each: str(tmp_path / "secret") for each in set_ if each.endswith(FILE)}
    loaded = settings.load(set_ | files, {})
    assert (len(files) >= 2, len(loaded.databases)) == (True, 2)
    assert loaded.redis_port
    assert loaded.admin_tokens


def test_the_third_databases_of_compose_are_taken() -> None:
    urls = re.findall(r"postgresql://tickets@[^\s\"]+|rediss://tickets@[^\s`]+", read("docs/operations/compose.md"))
    loaded = settings.load({"TICKETS_DATABASES": " ".join(urls), "TICKETS_DATABASE_PASSWORD": "x"}, {})
    assert [each.name.partition(":")[0] for each in loaded.databases] == ["postgresql", "redis"]
    assert {"postgresql", "redis"} <= SERVICES.keys()


def test_every_deployment_has_this_version_and_a_stop_leaves_time_to_drain() -> None:
    assert {SERVICES[name]["image"] for name in [*SERVERS, "certificates"]} == {f"ticket-server:{VERSION}"}
    assert BASE["images"][0]["newTag"] == VERSION
    defaults = settings.load({}, {})
    needed = defaults.drain_seconds + defaults.request_timeout
    before = int(CONTAINER["lifecycle"]["preStop"]["exec"]["command"][1])
    assert POD["spec"]["terminationGracePeriodSeconds"] > before + needed
    graces = [SERVICES[name]["stop_grace_period"].rstrip("s") for name in SERVERS]
    assert min(map(int, [*graces, *re.findall(r"^TimeoutStopSec=(\d+)s$", UNIT, re.MULTILINE)])) > needed


def test_the_server_starts_under_a_uid_without_a_name() -> None:
    """A container's uid has no entry in the list of users, and Python 3.13 says so with an OSError."""
    program = "import pwd; pwd.getpwuid = lambda uid: open('no such user'); from app.databases.mysql import login"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, env={}, check=True, timeout=60)  # nor has it a USER
