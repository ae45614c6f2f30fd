"""The blocks in Python: each runs from its first line to its last, beside a real server."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.documents.pages import REPOSITORY, Block
from tests.documents.test_commands import with_commands
from tests.harness.commands import clean_environment
from tests.harness.ticketd import PATIENT, TicketServer

pytestmark = pytest.mark.any_engine

SERVERS = ("http://10.0.0.1:8000", "http://10.0.0.2:8000")
BLOCKS = [each for each in with_commands() if each.language == "python"]
USES = {
    "ticketd_client.sqlalchemy": """
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

engine = create_engine("sqlite://")
Base.metadata.create_all(engine)
with Session(engine) as session:
    session.add_all([Photo() for _ in range(3)])
    session.flush()
    assert len({photo.id for photo in session.query(Photo)}) == 3
""",
    "ticketd_client.django": "assert Photo().pk != Photo().pk\n",
}
"""What a program does with what a block defines, by the module that the block imports."""
BEFORE = {
    "ticketd_client.django": """
import django
from django.conf import settings

settings.configure(TICKETD={"urls": ["http://10.0.0.1:8000"]}, INSTALLED_APPS=[])
django.setup()
""",
}
"""What stands in a project before it."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TicketServer]:
    """A server on an embedded pair."""
    with TicketServer(data_dir=tmp_path_factory.mktemp("data"), settings=PATIENT) as running:
        running.wait_ready()
        yield running


@pytest.mark.parametrize("block", BLOCKS, ids=lambda each: f"{each.page}:{each.line}")
def test_it_runs(block: Block, server: TicketServer) -> None:
    used = [name for name in USES if name in block.text]
    text = "".join([*(BEFORE.get(name, "") for name in used), block.text, *(USES[name] for name in used)])
    if "ticketd_client.django" in used:
        text = text.replace("id = TicketField", 'class Meta:\n        app_label = "photos"\n\n    id = TicketField')
    for address in SERVERS:
        text = text.replace(address, server.url)
    done = subprocess.run(
        [sys.executable, "-c", text],
        env=clean_environment({"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'client'}"}),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, f"{text}\n{done.stderr}"
