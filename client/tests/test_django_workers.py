"""The example application under programs that fork: gunicorn with --preload, and Celery's prefork pool.

Each time the parent has tickets in memory when it forks. What its children then hand out, they hand out once.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from tests.harness.processes import ChildProcess, free_port, wait_until

from orm_servers import EXAMPLES, PYTHON, environment, ticket_server

EXAMPLE = EXAMPLES / "django_photos"


class Application:
    """The example with a ticket server, an SQLite file and a queue of its own."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.file = folder / "photos.sqlite3"
        self.environment = environment(
            TICKETD_URLS=url,
            DATABASE_FILE=str(self.file),
            CELERY_FOLDER=str(folder / "queue"),
            DJANGO_SETTINGS_MODULE="gallery.settings",
        )
        self.environment["PYTHONPATH"] += f":{EXAMPLE}:{folder}"

    def manage(self, *command: str) -> str:
        """The output of a command of manage.py."""
        done = subprocess.run(
            [PYTHON, "manage.py", *command],
            cwd=EXAMPLE,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def rows(self, query: str) -> list[tuple[int, ...]]:
        with closing(sqlite3.connect(self.file, timeout=60)) as connection:
            return connection.execute(query).fetchall()


@pytest.fixture
def application(tmp_path: Path) -> Iterator[Application]:
    with ticket_server(tmp_path) as server:
        before = written()
        application = Application(tmp_path, server.url)
        application.manage("migrate", "--verbosity", "0")
        yield application
        assert written() == before, "the example wrote into its own folder"


def written() -> set[Path]:
    """What lies in the example's folder, without what Python compiles."""
    return {path for path in EXAMPLE.rglob("*") if "__pycache__" not in path.parts}


def test_example(application: Application) -> None:
    """As its README has it: the checks pass, the migrations are whole, a fixture goes out and in."""
    assert "no issues" in application.manage("check")
    assert "No changes" in application.manage("makemigrations", "--check", "--dry-run")
    shell = "from photos.models import *; Panorama.objects.create(album=Album.objects.create(title='a'), degrees=90)"
    application.manage("shell", "-c", shell)
    file = application.folder / "fixture.json"
    application.manage("dumpdata", "photos", "--output", str(file))
    application.manage("flush", "--no-input")
    assert "3 object" in application.manage("loaddata", str(file))
    assert application.rows("SELECT count(*) FROM photos_panorama JOIN photos_photo ON photo_ptr_id = id") == [(1,)]


_PRELOADED = """
import os
from gallery.wsgi import application
from photos.models import Album, Photo
from ticketd_client.django import get_tickets
before = get_tickets().take_many("photos", 10) + [Photo().pk]  # so that there are some in memory
get_tickets().take("groups")
print("BEFORE", *before, flush=True)
"""


def test_gunicorn_with_preload(application: Application) -> None:
    (application.folder / "preloaded.py").write_text(_PRELOADED)
    port, log = free_port(), application.folder / "gunicorn.log"
    command = ["-m", "gunicorn", "--preload", "--workers", "4", "--bind", f"127.0.0.1:{port}", "--chdir", str(EXAMPLE)]
    process = ChildProcess(
        [sys.executable, *command, "--timeout", "100", "preloaded:application"],
        stdout=log,
        stderr=log,
        env=application.environment,
        cwd=application.folder,
    )
    try:
        wait_until(lambda: log.read_text().count("Booting worker") == 4 or not process.running, 60, "gunicorn")
        assert process.running, log.read_text()

        def upload(_: int) -> dict[str, object]:
            request = urllib.request.Request(f"http://127.0.0.1:{port}/upload?count=25", method="POST")
            with urllib.request.urlopen(request, timeout=90) as answer:
                found: dict[str, object] = json.load(answer)
                return found

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(upload, range(100)))
        assert process.terminate(30) == 0
    finally:
        process.kill()
    given = [int(key) for answer in answers for key in answer["photos"]]  # type: ignore[attr-defined]
    ahead = [int(key) for key in next(line for line in log.read_text().splitlines() if "BEFORE" in line).split()[1:]]
    assert len(given) == 2500
    assert len(set(given + ahead)) == 2511
    assert len({answer["album"] for answer in answers}) == 100
    assert len({answer["process"] for answer in answers}) > 1  # several workers did it
    assert {key for (key,) in application.rows("SELECT id FROM photos_photo")} == set(given)


_TASKS = """
import os
from celery.signals import worker_init
from gallery.celery import app

@worker_init.connect
def before(**_):  # in the parent, before it forks
    from ticketd_client.django import get_tickets
    print("BEFORE", *get_tickets().take_many("photos", 11), flush=True)
"""


def test_celerys_prefork(application: Application) -> None:
    (application.folder / "queued.py").write_text(_TASKS)
    (application.folder / "queue" / "messages").mkdir(parents=True)
    log = application.folder / "celery.log"
    command = ["-m", "celery", "--app", "queued", "--workdir", str(EXAMPLE), "worker", "--pool", "prefork"]
    process = ChildProcess(
        [sys.executable, *command, "--concurrency", "4", "--loglevel", "info", "--without-gossip", "--without-mingle"],
        stdout=log,
        stderr=log,
        env=application.environment,
        cwd=application.folder,
    )
    send = (
        "from photos.models import *; from photos.tasks import add_photos; "
        "album = Album.objects.create(title='a'); [add_photos.delay(album.pk, 50) for _ in range(40)]"
    )
    try:
        application.manage("shell", "-c", send)
        wait_until(
            lambda: log.read_text().count(" succeeded in ") == 40 or not process.running, 90, "the tasks", interval=0.2
        )
        written = log.read_text()
        assert process.running, written
    finally:
        process.terminate(30)
    ahead = [int(key) for key in next(line for line in written.splitlines() if "BEFORE" in line).split()[-11:]]
    given = [key for (key,) in application.rows("SELECT id FROM photos_photo")]
    assert len(given) == 2000
    assert len(set(given + ahead)) == 2011
    workers = {line.split("ForkPoolWorker-")[1].split("]")[0] for line in written.splitlines() if "succeeded" in line}
    assert len(workers) > 1
