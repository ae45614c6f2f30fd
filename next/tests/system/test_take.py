"""`ticketd take`: the program from outside, on a pair of databases."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence

import pytest

from next.databases.engines import open_database, parse_list
from next.service import Options, Service
from next.tests.servers import Engine, engines
from next.tests.servers_shared import FreshDatabase, SharedServers

PATIENT = {"TICKETS_DATABASE_TIMEOUT": "20", "TICKETS_REQUEST_TIMEOUT": "40", "TICKETS_PROBE_INTERVAL": "0.2"}
"""Settings with which a slow machine changes nothing."""


def take(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command with these arguments and variables."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("TICKETS_")}
    return subprocess.run(
        [sys.executable, "-m", "next", "take", *arguments],
        env=plain | PATIENT | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


async def make(urls: Sequence[str], sequence: str) -> None:
    """Make a sequence on these databases."""
    databases = [open_database(address, 20.0) for address in parse_list(" ".join(urls), None)]
    service = Service(databases, Options("test:1", database_timeout=20.0))
    service.start()
    async with asyncio.timeout(60):
        while len(service.sight.in_sight) < len(urls):
            await service.sight.moved()
    await service.maker.create(sequence, None, {})
    await service.stop()


@pytest.mark.parametrize("engine", engines())
async def test_take_prints_tickets_lists_and_blocks_of_a_pair(engine: Engine, fresh_database: FreshDatabase) -> None:
    urls = [fresh_database(engine), fresh_database(engine)]
    await make(urls, "photos")
    databases = " ".join(urls)
    runs = [
        take("photos", TICKETS_DATABASES=databases),
        take("Photos", "-n", "500", TICKETS_DATABASES=databases),
        take("photos", "-n", "250", "--count", "100", "--databases", databases),
        take("photos", "--block", "200", "--databases", databases),
    ]
    assert [(run.returncode, run.stderr) for run in runs] == [(0, "")] * 4
    printed = [[int(line) for line in run.stdout.splitlines()] for run in runs]
    assert [len(each) for each in printed] == [1, 500, 250, 200]
    everything = [ticket for each in printed for ticket in each]
    assert len(set(everything)) == len(everything)
    assert {after - before for before, after in zip(printed[3], printed[3][1:], strict=False)} == {2}


async def test_take_makes_no_sequence(fresh_database: FreshDatabase) -> None:
    urls = [fresh_database("mariadb"), fresh_database("mariadb")]
    await make(urls, "photos")
    runs = [take("photographs", TICKETS_DATABASES=" ".join(urls)) for _ in range(2)]
    assert [(run.returncode, run.stdout) for run in runs] == [(1, "")] * 2
    assert all("there is no sequence photographs" in run.stderr for run in runs)


def test_take_says_why_no_ticket_can_be_had() -> None:
    done = take("photos", TICKETS_DATABASES="mysql://u:hush@127.0.0.1:1/d", TICKETS_REQUEST_TIMEOUT="1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("ticketd: no ticket database can be asked for the sequence now (127.0.0.1:1: ")
    assert "hush" not in done.stderr


def test_take_ends_quietly_when_its_reader_does(fresh_database: FreshDatabase, shared_servers: SharedServers) -> None:
    urls = [fresh_database("mariadb"), fresh_database("mariadb")]
    asyncio.run(make(urls, "photos"))
    command = [sys.executable, "-m", "next", "take", "photos", "-n", "1000000", "--databases", " ".join(urls)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | PATIENT) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        assert int(program.stdout.readline()) > 0
        program.stdout.close()
        assert program.wait(60) == 1
        assert program.stderr.read() == b""


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("TICKETS_DATABASES", "", "TICKETS_DATABASES is set and empty"),
        ("TICKETS_DATABASES", "mysql://u:hush@h/d/e", "TICKETS_DATABASES: the URL of h:3306"),
        ("TICKETS_DATABASES_FILE", "/nowhere", "TICKETS_DATABASES and TICKETS_DATABASES_FILE are both set"),
        ("TICKETS_DATABASE_PASSWORD_FILE", "/nowhere", "TICKETS_DATABASE_PASSWORD_FILE: the file cannot be read"),
        ("TICKETS_DATABASE_TIMEOUT", "1_0", "TICKETS_DATABASE_TIMEOUT is '1_0'; expected seconds"),
        ("TICKETS_PROBE_INTERVAL", "6", "TICKETS_PROBE_INTERVAL is '6'; expected seconds, above 0 and at most 5"),
        ("TICKETS_REQUEST_TIMEOUT", "0", "TICKETS_REQUEST_TIMEOUT is '0'; expected seconds"),
        ("TICKETS_INCREMENT", "1", "TICKETS_INCREMENT is '1'; expected a whole number, from the number of databases"),
        ("TICKETS_UNVERIFIED", "maybe", "TICKETS_UNVERIFIED is 'maybe'; expected serve"),
    ],
)
def test_a_wrong_setting_ends_the_command_and_is_named(name: str, value: str, said: str) -> None:
    done = take("photos", **{"TICKETS_DATABASES": "mysql://u:hush@h/d mysql://u@i/d", name: value})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"ticketd: {said}")
    assert done.stderr.count("\n") == 1
    assert "hush" not in done.stderr
