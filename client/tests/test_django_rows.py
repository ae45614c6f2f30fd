"""A TicketField that is added to a table with rows: Django would give all of them one ticket."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
import django
from django.conf import settings
settings.configure(
    TICKETD={"urls": ["http://127.0.0.1:1"]},
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1]}},
    INSTALLED_APPS=["album"],
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
)
django.setup()
from django.core.management import execute_from_command_line
from django.db import connection
execute_from_command_line(["manage", "migrate", "album", "0001", "-v0"])
connection.cursor().executemany("insert into album_photo (title) values (%s)", [["a"]] * int(sys.argv[2]))
execute_from_command_line(["manage", "migrate", "-v0", *sys.argv[3:]])
"""
MODELS = """
from django.db import models
from ticketd_client.django import TicketField
class Photo(models.Model):
    title = models.CharField(max_length=9)
    number = TicketField(sequence="photos", primary_key=False)
"""
FIRST = """
from django.db import migrations, models
class Migration(migrations.Migration):
    initial = True
    operations = [migrations.CreateModel("Photo", [
        ("id", models.BigAutoField(primary_key=True)), ("title", models.CharField(max_length=9))])]
"""
SECOND = """
from django.db import migrations
import ticketd_client.django
class Migration(migrations.Migration):
    dependencies = [("album", "0001_initial")]
    operations = [migrations.AddField("photo", "number",
        ticketd_client.django.TicketField(sequence="photos", primary_key=False, null=NULL))]
"""


def migrate(folder: Path, rows: int, *, null: bool = False) -> subprocess.CompletedProcess[str]:
    album = folder / "album" / "migrations"
    album.mkdir(parents=True)
    for name, text in {
        "__init__.py": "",
        "models.py": MODELS,
        "migrations/__init__.py": "",
        "migrations/0001_initial.py": FIRST,
        "migrations/0002_number.py": SECOND.replace("NULL", str(null)),
    }.items():
        (folder / "album" / name).write_text(text)
    arguments = [sys.executable, "-c", PROGRAM, str(folder / "db"), str(rows)]
    return subprocess.run(arguments, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_a_table_with_rows_is_refused_and_the_steps_are_named(tmp_path: Path) -> None:
    for number, null in enumerate((False, True)):
        ended = migrate(tmp_path / str(number), 6, null=null)
        assert ended.returncode == 1
        assert "album.Photo has rows" in ended.stderr, ended.stderr
        assert "BigIntegerField(null=True)" in ended.stderr
        assert "take('photos')" in ended.stderr
