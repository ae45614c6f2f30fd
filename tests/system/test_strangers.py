"""Requests that nobody of us has thought of, made by schemathesis from what /openapi.json says, with all its checks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.kinds import KINDS
from tests.harness.ticketd import PATIENT, TicketServer

pytestmark = pytest.mark.any_engine

CONFIGURATION = """
seed = 20041
generation.max-examples = 8
generation.database = "none"
phases.stateful.enabled = false
request-timeout = 30

# Whether a value can be of a sequence depends on its kind, and an epoch on the time of day: no schema says that.
[[operations]]
include-path-regex = "^/(ticket|block|decode|sequence)/|^/decode$"
checks.positive_data_acceptance.expected-statuses = ["2xx", 401, 403, 404, 409, 422, "5xx"]
"""
TOKEN = "strangers-token"
OF_KINDS = {f"of_kind_{name}": name for name in KINDS}


def schemathesis(server: TicketServer, where: Path, *arguments: str) -> str:
    """Run it on all that the server describes; its report, where it has found nothing."""
    (where / "schemathesis.toml").write_text(CONFIGURATION, encoding="utf-8")
    description = server.get("/openapi.json", headers={"Authorization": f"Bearer {TOKEN}"})
    document = description.json()
    for operations in document["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                if parameter["name"] == "sequence":  # one of each kind is asked for as well
                    parameter["examples"] = {name: {"value": name} for name in (parameter.pop("example"), *OF_KINDS)}
    (where / "openapi.json").write_text(json.dumps(document), encoding="utf-8")
    command = [sys.executable, "-W", "ignore", "-m", "schemathesis.cli", "run", "openapi.json", "--url", server.url]
    done = subprocess.run(
        [*command, "--checks", "all", "--no-color", *arguments],
        cwd=where,
        env={**os.environ, "PYTHONWARNINGS": "ignore", "NO_PROXY": "*"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "given",
    [
        "an admin's token",
        pytest.param("no tokens expected", marks=pytest.mark.long),
        pytest.param("no token", marks=pytest.mark.long),
    ],
)
def test_nothing_is_undocumented_and_nothing_breaks(tmp_path: Path, given: str) -> None:
    settings: dict[str, object] = dict(PATIENT)
    if given != "no tokens expected":
        settings |= {"TICKETS_TOKENS": TOKEN, "TICKETS_ADMIN_TOKENS": f"{TOKEN}-of-an-admin"}
    token = f"{TOKEN}-of-an-admin" if given == "an admin's token" else None
    with TicketServer(settings=settings) as server:
        server.wait_ready()
        admin = {"Authorization": f"Bearer {TOKEN}-of-an-admin"}
        for name, kind in OF_KINDS.items():
            assert server.put(f"/sequence/{name}", json={"kind": kind}, headers=admin).status == 201
        report = schemathesis(server, tmp_path, *(["-H", f"Authorization: Bearer {token}"] if token else []))
        log = server.log_text()
        assert server.get("/readyz").status == 200
    assert "Traceback" not in log
    assert "passed" in report
