"""The rules for every deployment example: verified databases, tokens, limits, named versions, a bill of materials."""

import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.common.version import VERSION
from app.databases.mysql.line.url import DatabaseURL, SslMode
from tests.documents.pages import REPOSITORY
from tests.harness.pair import MySQLPair
from tests.harness.ticketd import PATIENT, TicketServer

DEPLOY = REPOSITORY / "deploy"
COMPOSE = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text(encoding="utf-8"))
EXAMPLES = {
    "Compose": str(COMPOSE["x-ticket-server"]["environment"]),
    "systemd": "".join(
        (DEPLOY / f"systemd/{name}").read_text(encoding="utf-8") for name in ("ticketd.env", "ticketd@.service")
    ),
    "Kubernetes": "".join(
        (DEPLOY / f"kubernetes/{name}.yaml").read_text(encoding="utf-8") for name in ("deployment", "kustomization")
    ),
}
"""All that each says of settings."""


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_verifies_its_databases(example: str) -> None:
    text = re.sub(r"\$\{TICKETS_DATABASE_USER-(\w+)\}", r"\1", EXAMPLES[example])
    urls = [DatabaseURL.parse(each) for each in re.findall(r"mysql://[^\s\"\'\\]+", text)]
    assert len(urls) == 2
    assert all(url.ssl_mode is SslMode.VERIFY_IDENTITY and url.ssl_ca for url in urls)


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_has_tokens_in_a_file(example: str) -> None:
    assert "TICKETS_ADMIN_TOKENS_FILE" in EXAMPLES[example]
    # Compose publishes on this machine alone, and says so beside it
    assert ("TICKETS_TOKENS_FILE" in EXAMPLES[example]) == (example != "Compose")


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_every_container_is_confined(name: str) -> None:
    service: dict[str, Any] = COMPOSE["services"][name]
    assert service["cap_drop"] == ["ALL"]
    assert service.get("cap_add", []) == (["CHOWN"] if name == "certificates" else [])
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["mem_limit"]
    assert service["pids_limit"]
    assert set(service["logging"]["options"]) == {"max-size", "max-file"}


def test_every_image_has_a_version_and_ours_is_this_one() -> None:
    images = {each["image"] for each in COMPOSE["services"].values()}
    dockerfile = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")
    images |= set(re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE))
    for image in images:
        assert re.search(r":v?\d+\.\d+[\w.-]*$", image), image
    assert f"ticket-server:{VERSION}" in images
    kustomization = yaml.safe_load((DEPLOY / "kubernetes/kustomization.yaml").read_text(encoding="utf-8"))
    assert kustomization["images"] == [{"name": "ticket-server", "newTag": VERSION}]
    assert f"ticket-server:{VERSION} " in (REPOSITORY / "SECURITY.md").read_text(encoding="utf-8")


def test_nodes_can_be_drained_and_names_and_traces_get_out() -> None:
    budget = yaml.safe_load((DEPLOY / "kubernetes/disruption-budget.yaml").read_text(encoding="utf-8"))
    assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    policy = yaml.safe_load((DEPLOY / "kubernetes/network-policy.yaml").read_text(encoding="utf-8"))
    by_port = {(each["protocol"], each["port"]): rule for rule in policy["spec"]["egress"] for each in rule["ports"]}
    assert set(by_port) == {("TCP", 3306), ("TCP", 4318), ("UDP", 53), ("TCP", 53)}
    assert {"ipBlock": {"cidr": "169.254.20.10/32"}} in by_port["UDP", 53]["to"]


FORBIDS_WRITABLE_CODE = """
import ctypes, mmap, pathlib
PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN = 65, 1
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0) == 0, ctypes.get_errno()
try:
    mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
except PermissionError:
    pathlib.Path({seen!r}).touch()
"""
"""What MemoryDenyWriteExecute has systemd ask of the kernel (Linux 6.3 and later), and a look whether it holds."""


def test_the_server_needs_no_memory_that_is_writable_and_executable(own_pair: MySQLPair, tmp_path: Path) -> None:
    assert "MemoryDenyWriteExecute=yes" in (DEPLOY / "systemd/ticketd@.service").read_text(encoding="utf-8")
    (tmp_path / "sitecustomize.py").write_text(
        FORBIDS_WRITABLE_CODE.format(seen=str(tmp_path / "held")), encoding="utf-8"
    )
    with TicketServer(own_pair.urls, settings={**PATIENT, "PYTHONPATH": tmp_path}) as server:
        server.wait_health("pass")
        assert (tmp_path / "held").exists()
        assert {server.ticket("photos") % 2 for _ in range(4)} == {0, 1}
        assert server.put("/sequence/albums", json={"bits": 32}).status == 201
        for path in ("/", "/docs", "/metrics", "/healthz", "/sequence", "/openapi.json"):
            assert server.get(path).status == 200, path
        assert server.terminate() == 0


def test_the_bill_of_materials_lists_what_is_installed_and_locked(tmp_path: Path) -> None:
    here = {each.metadata["Name"]: each.version for each in importlib.metadata.distributions()}
    lock = [f"{name}=={version} ; python_version > '3' \\\n" for name, version in here.items()]
    (tmp_path / "lock.txt").write_text("".join([*lock, "not-on-this-platform==1.0 \\\n"]), encoding="utf-8")
    command = [sys.executable, str(DEPLOY / "sbom.py"), str(tmp_path / "lock.txt")]
    first, second = (subprocess.run(command, capture_output=True, check=True, timeout=60).stdout for _ in range(2))
    assert first == second
    bill = json.loads(first)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert all(each["purl"].endswith(f"{each['name']}@{each['version']}") for each in bill["components"])
    listed = {each["name"]: each["version"] for each in bill["components"]}
    assert listed["fastapi"] == here["fastapi"]
    assert "not-on-this-platform" not in listed
    assert not {"pip", "setuptools", "ticket-server"} & set(listed)


def test_what_the_lock_file_does_not_name_is_no_part_of_a_release(tmp_path: Path) -> None:
    (tmp_path / "lock.txt").write_text("fastapi==0.0.1 \\\n    --hash=sha256:00\n", encoding="utf-8")
    command = [sys.executable, str(DEPLOY / "sbom.py"), str(tmp_path / "lock.txt")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "the lock file says" in done.stderr
