"""TicketField on real databases: objects have their keys when made, and those that are given one take none."""

from __future__ import annotations

import contextlib
import copy
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import django
import pymysql
import pytest
from django.apps import apps
from django.conf import settings
from django.core import serializers
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connections, transaction
from django.forms import modelform_factory
from django.test.utils import override_settings

from lying_server import Honest, LyingServer, http
from ticketd_client import TicketsUnavailable
from ticketd_client.django import TicketField, get_tickets

KINDS = "sqlite", "mysql", "postgresql"
MIGRATIONS = "pictures_migrations_of_this_test"
HONEST = Honest()


def settings_of(kind: str, place: str) -> dict[str, Any]:
    """A database in Django's settings."""
    parts = urlsplit(f"//{place}")
    if kind == "sqlite":
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": place[1:]}
    where = {"HOST": parts.hostname, "PORT": parts.port, "USER": parts.username}
    return {"ENGINE": f"django.db.backends.{kind}", "NAME": parts.path[1:], **where}


@pytest.fixture(scope="module", autouse=True)
def folder(empty_database: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project with each kind of database and its tables. Yields the folder of its migrations."""
    # Django takes PyMySQL for mysqlclient. PyMySQL's own way to do that names the package alone: its modules would be
    # imported once more, with exceptions that nobody in this process catches.
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == pymysql.__name__:
            sys.modules[name.replace("pymysql", "MySQLdb", 1)] = module
    home = tmp_path_factory.mktemp("django")
    (home / MIGRATIONS).mkdir()
    (home / MIGRATIONS / "__init__.py").touch()
    sys.path.insert(0, str(home))
    databases = {kind: settings_of(kind, empty_database(kind, home)) for kind in KINDS}
    with LyingServer(HONEST) as server:
        settings.configure(
            TICKETD={"urls": [server.url], "timeout": 60, "prefetch": 0},
            DATABASES={"default": databases["sqlite"], **databases},
            INSTALLED_APPS=["django_pictures"],
            MIGRATION_MODULES={"django_pictures": MIGRATIONS},
            USE_TZ=True,
            DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        )
        django.setup()
        call_command("makemigrations", "django_pictures", verbosity=0)
        for kind in KINDS:
            call_command("migrate", database=kind, verbosity=0)
        assert not HONEST.calls
        yield home / MIGRATIONS
        connections.close_all()
        sys.path.remove(str(home))


@pytest.fixture
def pictures() -> Any:
    return apps.get_app_config("django_pictures").models_module


@pytest.fixture(params=KINDS)
def using(request: pytest.FixtureRequest) -> Iterator[str]:
    """The alias of a database; whatever a test writes there is rolled back."""
    with transaction.atomic(using=request.param):
        yield request.param
        transaction.set_rollback(True, using=request.param)


@contextlib.contextmanager
def takes(count: int) -> Iterator[None]:
    """Within, so many tickets are taken; each is a request."""
    before = len(HONEST.calls)
    yield
    assert len(HONEST.calls) - before == count


def test_a_key_is_there_from_the_construction_on(using: str, pictures: Any) -> None:
    with takes(3):
        album = pictures.Album(title="a")
        photo = pictures.Photo(title="b", album=album)
        invoice = pictures.Invoice(pk="A-1")
    assert photo.album_id == album.pk == album.id > 0
    with takes(0):
        for each in (album, photo, invoice):
            each.save(using=using)
        album.title = "c"
        album.save(using=using)
        assert pictures.Album.objects.using(using).only("title").get().pk == album.pk
        assert pictures.Photo.objects.using(using).select_related("album").get().album.title == "c"
        assert pictures.Invoice.objects.using(using).get(number=invoice.number).code == "A-1"
        assert pickle.loads(pickle.dumps(album)).pk == copy.deepcopy(album).pk == album.pk
        album.refresh_from_db()


def test_bulk_create_takes_blocks(using: str, pictures: Any) -> None:
    before = len(HONEST.calls)
    with override_settings(TICKETD={**settings.TICKETD, "prefetch": 1000}):
        pictures.Photo.objects.using(using).bulk_create([pictures.Photo(title="x") for _ in range(5_000)])
    assert len(HONEST.calls) - before < 50
    assert pictures.Photo.objects.using(using).count() == 5_000


def test_a_key_that_is_given_takes_no_ticket(using: str, pictures: Any) -> None:
    photos = pictures.Photo.objects.using(using)
    with takes(0):
        for number, name in enumerate(("pk", "number")):
            photo = pictures.Photo(**{name: 7 + number, "title": "a"})
            assert photo.pk == photo.number == 7 + number
            photo.save(using=using)
        with pytest.raises(IntegrityError), transaction.atomic(using=using):
            photos.create(pk=7)
        copied, others = pictures.Photo(number=None), [pictures.Photo(pk=None, title="b") for _ in range(3)]
    with takes(4):  # a key of None is filled when it is saved
        copied.save(using=using)
        photos.bulk_create(others)
    first, copied.pk, copied._state.adding = copied.pk, None, True
    with takes(1):
        copied.save(using=using)
    assert len({first, copied.pk, *(each.pk for each in others)}) == 5
    for count in (1, 0):
        with takes(count):
            pictures.Album.objects.using(using).get_or_create(title="a")


def test_a_child_has_its_parents_key(using: str, pictures: Any) -> None:
    with takes(2):
        sphere = pictures.Sphere(title="a")
        sphere.save(using=using)
        photo = pictures.Photo.objects.using(using).create(title="b")
    assert sphere.pk == sphere.number == sphere.panorama_ptr_id == sphere.photo_ptr_id
    with takes(0):
        for given in ({"photo_ptr": photo}, {"photo_ptr_id": photo.pk}, {"pk": photo.pk}):
            panorama = pictures.Panorama(title="c", **given)
            assert panorama.pk == panorama.number == photo.pk
        panorama.save_base(raw=True, using=using)  # a child of what is there; save() would insert a parent as well
        assert pictures.Sphere.objects.using(using).get().pk == sphere.pk
        assert pictures.Photo.objects.using(using).count() == 2
        data = serializers.serialize("json", [sphere, photo, panorama])
        for each in serializers.deserialize("json", data, using=using):  # as loaddata does
            each.save(using=using)


def test_a_migration_names_the_sequence_and_no_default_and_forms_do_not_show_it(folder: Path, pictures: Any) -> None:
    text = (folder / "0001_initial.py").read_text()
    assert "ticketd_client.django.TicketField(primary_key=True, sequence='photos', serialize=False)" in text
    assert "ticketd_client.django.TicketField(primary_key=False, sequence='offline_tasks', unique=True)" in text
    assert "default=" not in text
    call_command("makemigrations", "django_pictures", check=True, dry_run=True, verbosity=0)  # nothing has changed
    for field in (
        TicketField(sequence="photos", primary_key=False, null=True, editable=True, blank=False, db_column="n"),
        TicketField("the number", sequence="photos", help_text="a number"),
    ):
        _, _, args, kwargs = field.deconstruct()
        again = TicketField(*args, **kwargs)
        assert again.deconstruct() == field.deconstruct() == field.clone().deconstruct()
        assert (again.sequence, again.editable, again.blank) == (field.sequence, field.editable, field.blank)
    assert list(modelform_factory(pictures.Album, fields="__all__")({"title": "a"}).fields) == ["title"]
    assert TicketField(sequence="photos", editable=True).formfield() is not None


ADDS = """
from django.db import migrations
from ticketd_client.django import TicketField
class Migration(migrations.Migration):
    dependencies = [("django_pictures", "0001_initial")]
    operations = [migrations.AddField("album", "more", TicketField(sequence="photos", primary_key=False, null=True))]
"""


def test_a_field_is_not_added_to_a_table_with_rows(folder: Path, pictures: Any) -> None:
    """Django would give all of them one ticket. The steps to take are named."""
    row = pictures.Album.objects.create(title="a")
    file = folder / "0002_more.py"
    file.write_text(ADDS)
    with takes(0), pytest.raises(CommandError, match="Album has rows") as raised:
        call_command("migrate", verbosity=0)
    assert "BigIntegerField(null=True)" in str(raised.value)
    assert "take('photos')" in str(raised.value)
    row.delete()
    file.unlink()


WRONG: list[tuple[Any, str]] = [
    *((None, "urls"), (["http://127.0.0.1:1"], ""), ({}, "urls"), ({"urls": ["http://h"], "url": "x"}, "url")),
    ({"urls": ["ftp://h"], "token": "secret"}, "ftp://h"),
    ({"urls": ["http://h"], "token": "secret", "prefetch": -1}, "prefetch"),
]


@pytest.mark.parametrize(("ticketd", "says"), WRONG)
def test_what_is_wrong_with_the_settings_is_said_by_name(ticketd: Any, says: str) -> None:
    with override_settings(TICKETD=ticketd):
        with pytest.raises(ImproperlyConfigured, match="settings.TICKETD.*" + says) as raised:
            get_tickets()
        (found,) = [each for each in run_checks() if each.id == "ticketd.E001"]
    assert found.msg == str(raised.value)
    assert "secret" not in found.msg


def test_what_a_field_cannot_do_is_said(pictures: Any, nobody: str) -> None:
    for wrong in ("default", "db_default"):
        with pytest.raises(TypeError, match=f"takes no {wrong}: its default is the next ticket"):
            TicketField(sequence="photos", **{wrong: 1})
    with override_settings(TICKETD={"urls": [f"http://{nobody}"], "timeout": 0.2}):
        with pytest.raises(TicketsUnavailable, match=nobody):
            pictures.Photo(title="a")
        assert pictures.Photo(pk=7).pk == 7
    long = http({"sequence": "names", "id": "1" * 32, "id_str": "1" * 32})
    with LyingServer(lambda _: long) as server, override_settings(TICKETD={"urls": [server.url], "prefetch": 0}):
        field = TicketField(sequence="names")
        with pytest.raises(ImproperlyConfigured, match="ids of the sequence names are too long"):
            field.get_default()
