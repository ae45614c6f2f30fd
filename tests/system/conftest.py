"""Two ticket servers on a ring of two databases. Each file names their engines, with a fixture `databases`."""

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest

from tests.servers import Engine
from tests.torture.faults import Faults
from tests.torture.stage import Stage


@pytest.fixture(scope="module")
def started(databases: Sequence[Engine]) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(stack, databases, 2)


@pytest.fixture
def stage(started: Stage) -> Stage:
    """The servers and databases. All is well, whatever a test before has left."""
    for process in (*started.databases, *started.servers):
        if not process.running:
            process.start()
    started.settle()
    return started


@pytest.fixture(scope="module")
def faults(started: Stage, tmp_path_factory: pytest.TempPathFactory) -> Faults:
    return Faults(started, random.Random(5), tmp_path_factory.mktemp("copies"), pace=0.3)
