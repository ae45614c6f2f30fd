"""The examples on the page of a sequence, run as a reader runs them."""

import html
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.checkout import REPOSITORY
from tests.harness.processes import free_port
from tests.harness.ticketd import PATIENT, TicketServer

pytestmark = pytest.mark.any_engine

TOKEN = "the-token-of-a-reader"
SEQUENCES = {"photos": {}, "likes": {"kind": "instagram"}, "sessions": {"kind": "uuid7"}}
ID = r"\d+|[0-9a-f-]{36}"
INSERT = """
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
engine = create_engine("sqlite://")
Base.metadata.create_all(engine)
with Session(engine) as session:
    items = [Item(), Item()]
    session.add_all(items)
    session.commit()
    print(*(item.id for item in items), sep="\\n")
"""
SET_UP = """
import django
from django.conf import settings
settings.configure(TICKETD=TICKETD, INSTALLED_APPS=[])
django.setup()
"""
CONSTRUCT = """
    class Meta:
        app_label = "items"

print(Item().pk, Item().pk, sep="\\n")
"""


@pytest.fixture(scope="module", params=["", TOKEN], ids=["free", "with a token"])
def server(request: pytest.FixtureRequest) -> Iterator[TicketServer]:
    settings = {**PATIENT, "TICKETS_REDIS_PORT": free_port()}
    with TicketServer(settings={**settings, **({"TICKETS_TOKENS": request.param} if request.param else {})}) as server:
        server.wait_ready()
        for name, body in SEQUENCES.items():
            reply = server.put(f"/sequence/{name}", json=body, headers={"Authorization": f"Bearer {TOKEN}"})
            assert reply.status in (200, 201)
        yield server


def examples(server: TicketServer, sequence: str) -> dict[str, str]:
    """The examples by their titles, with the token in its place."""
    page = server.get(f"/page/{sequence}", headers={"Authorization": f"Bearer {TOKEN}"}).text
    found = re.findall(r'(?s)<h3 id="([^"]*)">.*?<pre[^>]*>(.*?)</pre>', page)
    return {title: html.unescape(text).replace("TOKEN", TOKEN) for title, text in found}


def run(*command: str, folder: Path) -> str:
    paths = os.pathsep.join([str(REPOSITORY / "client"), str(REPOSITORY)])
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_the_lines_for_a_shell_draw_tickets(server: TicketServer, sequence: str, tmp_path: Path) -> None:
    found = examples(server, sequence)
    curl = run("bash", "-ec", found["curl"].replace("curl ", "curl --fail --silent --show-error "), folder=tmp_path)
    assert curl.count(f'"sequence":"{sequence}"') == len(found["curl"].splitlines())
    redis = run("bash", "-ec", found["redis-cli"].replace("redis-cli ", "redis-cli -e "), folder=tmp_path)
    assert len(re.findall(f"(?m)^({ID})$", redis)) >= 6


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_the_python_programs_draw_tickets(server: TicketServer, sequence: str, tmp_path: Path) -> None:
    found = examples(server, sequence)
    settings, _, models = found["django"].partition("# models.py\n")
    programs = [found["python"], found["sqlalchemy"] + INSERT, settings + SET_UP + models + CONSTRUCT]
    for program in programs:
        printed = run(sys.executable, "-c", program, folder=tmp_path)
        assert len(re.findall(f"({ID})", printed)) >= 2
