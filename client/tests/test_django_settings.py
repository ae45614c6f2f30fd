"""settings.TICKETD: what is wrong with it is said by name, and by `manage.py check`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.servers_processes import free_port

from orm_servers import PYTHON, environment

_SETTINGS = """
import os, sys
import django
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from ticketd_client.django import get_tickets

def says():
    try:
        print("tickets", get_tickets(), get_tickets() is get_tickets())
    except ImproperlyConfigured as error:
        print("tickets", error)
    try:
        call_command("check")
        print("check", "passes")
    except SystemCheckError as error:
        print("check", " ".join(str(error).split()))

for given in GIVEN:
    child = os.fork()
    if child == 0:
        settings.configure(INSTALLED_APPS=[], DATABASES={}, **given)
        django.setup()
        says()
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    print("--", flush=True)
"""


def run(script: str, warnings: str = "error") -> list[str]:
    """What a program in a process of its own prints: settings are for a process."""
    done = subprocess.run(
        [PYTHON, "-W", warnings, "-c", script],
        env=environment(),
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def said(*given: dict[str, object]) -> list[list[str]]:
    """What Tickets and the check say of each of these settings, in a process of its own."""
    printed = "".join(f"{line}\n" for line in run(_SETTINGS.replace("GIVEN", repr(given))))
    return [each.splitlines() for each in printed.split("--\n")[:-1]]


WRONG: list[tuple[dict[str, object], str]] = [
    ({}, 'settings.TICKETD is missing: TICKETD = {"urls"'),
    ({"TICKETD": ["http://127.0.0.1:1"]}, "settings.TICKETD is a dict, not a list"),
    ({"TICKETD": {}}, 'settings.TICKETD["urls"] is a list of at least one URL'),
    ({"TICKETD": {"urls": []}}, 'settings.TICKETD["urls"] is a list of at least one URL'),
    ({"TICKETD": {"urls": "http://127.0.0.1:1"}}, 'settings.TICKETD["urls"] is a list of at least one URL'),
    (
        {"TICKETD": {"urls": ["http://127.0.0.1:1"], "url": "x", "TIMEOUT": 2}},
        "settings.TICKETD has no TIMEOUT, url: it may have urls, token, prefetch, max_age, timeout, tls",
    ),
    ({"TICKETD": {"urls": ["ftp://127.0.0.1"], "token": "secret"}}, "settings.TICKETD: "),
    ({"TICKETD": {"urls": ["http://127.0.0.1:1"], "token": "secret", "prefetch": -1}}, "settings.TICKETD: "),
    ({"TICKETD": {"urls": ["http://127.0.0.1:1"], "token": "secret", "timeout": "soon"}}, "settings.TICKETD: "),
]


@pytest.fixture(scope="module")
def said_of_wrong_ones() -> list[list[str]]:
    return said(*(given for given, _ in WRONG))


@pytest.mark.parametrize(("number", "says"), [(number, says) for number, (_, says) in enumerate(WRONG)])
def test_what_is_wrong_is_said(said_of_wrong_ones: list[list[str]], number: int, says: str) -> None:
    tickets, check = said_of_wrong_ones[number]
    assert tickets.startswith(f"tickets {says}")
    assert "secret" not in tickets + check
    assert "(ticketd.E001)" in check
    assert says in check


def test_right_ones_pass_without_a_server() -> None:
    ticketd = {"urls": ["http://127.0.0.1:1"], "token": "secret", "prefetch": 5, "max_age": 9, "timeout": 1}
    given: dict[str, object] = {"TICKETD": ticketd}
    ((tickets, *_, check),) = said(given)
    assert tickets == "tickets <Tickets http://127.0.0.1:1 prefetch=5 max_age=9 timeout=1> True"
    assert check == "check passes"


_FIELDS = """
import django
from django.conf import settings
settings.configure(INSTALLED_APPS=[], DATABASES={}, TICKETD={"urls": ["http://127.0.0.1:PORT"]})
django.setup()
from django.db import models
from ticketd_client.django import TicketField
for given in ({}, {"sequence": "photos", "default": 1}, {"sequence": "photos", "db_default": 1}):
    try:
        TicketField(**given)
    except TypeError as error:
        print(error)
for name in ("photos", "p-hotos", "7", "_x", "x" * 65, ""):
    class Photo(models.Model):
        id = TicketField(sequence=name)
        class Meta:
            app_label = f"app{len(name)}{name[:1]}"
    print(name[:7], [(found.id, found.msg) for found in Photo.check()])
"""


def test_what_is_wrong_with_a_field_is_said() -> None:
    missing, default, db_default, *checked = run(_FIELDS.replace("PORT", str(free_port())))
    assert "'sequence'" in missing
    assert default == "TicketField takes no default: its default is the next ticket of its sequence"
    assert db_default == "TicketField takes no db_default: its default is the next ticket of its sequence"
    assert checked[0] == "photos []"
    assert len(checked) == 6
    assert all("('ticketd.E002', " in line and "cannot be the name of a sequence" in line for line in checked[1:])


_THREADS = """
import django, os, sys, threading
from django.conf import settings
settings.configure(INSTALLED_APPS=[], DATABASES={}, TICKETD={"urls": ["http://127.0.0.1:1"]})
django.setup()
from ticketd_client import django as integration
found, start = [], threading.Barrier(20)
def get():
    start.wait()
    found.append(integration.get_tickets())
threads = [threading.Thread(target=get) for _ in range(20)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(set(map(id, found))))
"""


def test_threads_get_the_same_tickets() -> None:
    assert run(_THREADS) == ["1"]


_FORKED_WHILE_MADE = """
import django, os, sys, threading
from django.conf import settings
settings.configure(INSTALLED_APPS=[], DATABASES={}, TICKETD={"urls": ["http://127.0.0.1:1"]})
django.setup()
from ticketd_client import django as integration
making, forked = threading.Event(), threading.Event()
real = integration.Tickets
def slow(**given):
    making.set()
    assert forked.wait(30)
    return real(**given)
integration.Tickets = slow
thread = threading.Thread(target=integration.get_tickets)
thread.start()
making.wait(30)
child = os.fork()
if child == 0:
    forked.set()
    integration.get_tickets()
    os._exit(7)
forked.set()
thread.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_fork_while_another_thread_makes_them() -> None:
    """The child does not wait for a thread that it does not have."""
    ran = run(_FORKED_WHILE_MADE, warnings="ignore")  # later Pythons warn of such a fork
    assert ran == ["7"]
