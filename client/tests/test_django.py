"""TicketField on real databases: objects have their keys when made, and those that are given one take none."""

from __future__ import annotations

import contextlib
import copy
import json
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core import serializers
from django.core.management import call_command
from django.db import DatabaseError, IntegrityError, connections, migrations, models, transaction
from django.db.migrations.state import ProjectState
from django.forms import inlineformset_factory, modelform_factory
from django.test import Client
from django.test.utils import override_settings
from tests.ticketd import TicketServer

from django_project import MIGRATIONS, project
from orm_servers import KINDS, requests
from ticketd_client import TicketsUnavailable
from ticketd_client.django import TicketField, get_tickets

MANY = 10_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TicketServer]:
    """The ticket server of settings.TICKETD; Django is set up with all the databases."""
    with project(tmp_path_factory.mktemp("django")) as server:
        yield server


@pytest.fixture(scope="module")
def written(server: TicketServer) -> Path:
    """The first migration of the app, as makemigrations writes it."""
    before = requests(server)
    call_command("makemigrations", "django_pictures", verbosity=0)
    assert requests(server) == before
    return Path(sys.path[0]) / MIGRATIONS / "0001_initial.py"


@pytest.fixture(scope="module")
def migrated(written: Path) -> Callable[[str], None]:
    done: set[str] = set()

    def migrate(kind: str) -> None:
        if kind not in done:
            call_command("migrate", database=kind, verbosity=0)
            done.add(kind)

    return migrate


@pytest.fixture(params=KINDS)
def using(request: pytest.FixtureRequest, server: TicketServer, migrated: Callable[[str], None]) -> Iterator[str]:
    """The alias of a database with the app's tables; whatever a test writes is rolled back."""
    kind: str = request.param
    migrated(kind)
    with transaction.atomic(using=kind):
        yield kind
        transaction.set_rollback(True, using=kind)


@pytest.fixture
def pictures(server: TicketServer) -> Any:
    """The module with the models."""
    return apps.get_app_config("django_pictures").models_module


@contextlib.contextmanager
def takes(server: TicketServer, count: int) -> Iterator[None]:
    """Within, so many tickets are taken; with prefetch=0 each is a request."""
    before = requests(server)
    yield
    assert requests(server) - before == count


# -- objects


def test_key_is_there_from_the_construction_on(using: str, server: TicketServer, pictures: Any) -> None:
    with takes(server, 2):
        album = pictures.Album(title="a")
        photo = pictures.Photo(title="b", album=album)
    assert album.pk == album.id > 0
    assert photo.album_id == album.pk
    assert pictures.Photo._meta.pk.name == "number"
    key = album.pk
    with takes(server, 0):
        album.save(using=using)
        photo.save(using=using)
        album.title = "c"
        album.save(using=using)
        assert pictures.Album.objects.using(using).get().title == "c"
        assert [each.pk for each in pictures.Album.objects.using(using).only("title")] == [key]
        assert pictures.Photo.objects.using(using).select_related("album").get().album.pk == key
        assert pictures.Photo.objects.using(using).filter(album__pk=key).count() == 1
        pickle.loads(pickle.dumps(album))
        copy.deepcopy(album)
        album.refresh_from_db()


def test_bulk_create_of_10000_asks_once_a_block(using: str, server: TicketServer, pictures: Any) -> None:
    with override_settings(TICKETD={"urls": [server.url], "timeout": 30, "prefetch": 1000}):
        before = requests(server)
        made = pictures.Photo.objects.using(using).bulk_create([pictures.Photo(title="x") for _ in range(MANY)])
        asked = requests(server) - before
    # `prefetch` tickets are ahead in two blocks; the first ones are small, while the rate is not known
    assert asked <= MANY / 500 + 5
    found = set(pictures.Photo.objects.using(using).values_list("number", flat=True))
    assert found == {photo.pk for photo in made}
    assert len(found) == MANY


@pytest.mark.parametrize("name", ["pk", "number"])
def test_given_key_takes_no_ticket(using: str, server: TicketServer, pictures: Any, name: str) -> None:
    with takes(server, 0):
        photo = pictures.Photo(**{name: 7, "title": "a"})
        assert photo.pk == photo.number == 7
        photo.save(using=using)
        pictures.Photo.objects.using(using).create(**{name: 8, "title": "b"})
        assert pictures.Photo.objects.using(using).get(**{name: 7}).title == "a"
        with pytest.raises(IntegrityError), transaction.atomic(using=using):
            pictures.Photo(**{name: 7, "title": "c"}).save(using=using)  # an INSERT, as with any default


def test_key_of_none_is_filled_when_it_is_saved(using: str, server: TicketServer, pictures: Any) -> None:
    """So Django's way to copy an object works: pk = None, and save."""
    with takes(server, 0):
        photo = pictures.Photo(number=None, title="a")
        others = [pictures.Photo(pk=None, title="b") for _ in range(3)]
    with takes(server, 4):
        photo.save(using=using)
        pictures.Photo.objects.using(using).bulk_create(others)
    first, photo.pk, photo._state.adding = photo.pk, None, True
    with takes(server, 1):
        photo.save(using=using)
    assert len({first, photo.pk, *(each.pk for each in others)}) == 5
    assert pictures.Photo.objects.using(using).count() == 5


def test_inheritance(using: str, server: TicketServer, pictures: Any) -> None:
    """A child has its parent's key; a ticket is taken once, and none where the key comes with the parent."""
    with takes(server, 1):
        sphere = pictures.Sphere(title="a")
        sphere.save(using=using)
    assert sphere.pk == sphere.number == sphere.panorama_ptr_id == sphere.photo_ptr_id
    photo = pictures.Photo.objects.using(using).create(title="b")
    with takes(server, 0):
        for given in ({"photo_ptr": photo}, {"photo_ptr_id": photo.pk}, {"pk": photo.pk}):
            panorama = pictures.Panorama(title="c", **given)
            assert panorama.pk == panorama.number == photo.pk
        panorama.save_base(raw=True, using=using)  # a child of what is there; save() would insert a parent as well
        assert pictures.Sphere.objects.using(using).get().pk == sphere.pk
        assert pictures.Photo.objects.using(using).count() == 2
    with takes(server, 3):
        account = pictures.Account.objects.using(using).create(name="a")
        account.friends.add(pictures.Account.objects.using(using).create(name="b"))
        pictures.SmallPhoto.objects.using(using).create(title="d")


def test_ticket_beside_another_key(using: str, server: TicketServer, pictures: Any) -> None:
    with takes(server, 1):
        invoice = pictures.Invoice(pk="A-1")
        invoice.save(using=using)
    assert pictures.Invoice.objects.using(using).get(number=invoice.number).code == "A-1"


def test_get_or_create_takes_a_ticket_where_it_creates(using: str, server: TicketServer, pictures: Any) -> None:
    for count in (1, 0, 0):
        with takes(server, count):
            pictures.Account.objects.using(using).get_or_create(name="a")
    with takes(server, 0):
        pictures.Account.objects.using(using).update_or_create(name="a", defaults={"name": "b"})


# -- fixtures, forms, the admin


@pytest.mark.parametrize("form", ["json", "xml", "jsonl"])
def test_fixtures_keep_their_keys_and_take_none(
    using: str, server: TicketServer, pictures: Any, form: str, tmp_path: Path
) -> None:
    album = pictures.Album.objects.using(using).create(title="a")
    photo = pictures.Photo.objects.using(using).create(title="b", album=album)
    sphere = pictures.Sphere.objects.using(using).create(title="c")
    file = tmp_path / f"pictures.{form}"
    with takes(server, 0):
        call_command("dumpdata", "django_pictures", database=using, format=form, output=str(file), verbosity=0)
        call_command("loaddata", str(file), database=using, verbosity=0)  # over what is there
        pictures.Photo.objects.using(using).all().delete()
        pictures.Album.objects.using(using).all().delete()
        call_command("loaddata", str(file), database=using, verbosity=0)
        assert pictures.Photo.objects.using(using).get(pk=photo.pk).album_id == album.pk
        assert pictures.Sphere.objects.using(using).get().pk == sphere.pk
        assert pictures.Sphere.objects.using(using).get().title == "c"
    assert str(photo.pk) in file.read_text()


def test_fixture_without_a_key_takes_one(using: str, server: TicketServer, pictures: Any) -> None:
    entry = {"model": "django_pictures.album", "fields": {"title": "a"}}
    with takes(server, 1):
        for read in serializers.deserialize("json", json.dumps([entry]), using=using):
            read.save(using=using)
    assert pictures.Album.objects.using(using).get().pk > 0


def test_forms_do_not_show_it(server: TicketServer, migrated: Callable[[str], None], pictures: Any) -> None:
    migrated("default")
    with transaction.atomic():
        form = modelform_factory(pictures.Album, fields="__all__")({"title": "a"})
        assert list(form.fields) == ["title"]
        assert form.is_valid(), form.errors
        album = form.save()
        again = modelform_factory(pictures.Album, fields="__all__")({"title": "b"}, instance=album).save()
        assert again.pk == album.pk

        formset = inlineformset_factory(pictures.Album, pictures.Photo, fields=["title"], extra=2)
        sent = {"photos-TOTAL_FORMS": "2", "photos-INITIAL_FORMS": "0", "photos-0-title": "x", "photos-1-title": "y"}
        filled = formset(sent, instance=album)
        assert filled.is_valid(), filled.errors
        first, _ = filled.save()
        sent = {"photos-TOTAL_FORMS": "1", "photos-INITIAL_FORMS": "1", "photos-0-title": "z"}
        filled = formset(
            {**sent, "photos-0-number": str(first.pk)}, instance=album, queryset=album.photos.filter(pk=first.pk)
        )
        assert filled.is_valid(), filled.errors
        filled.save()
        assert sorted(album.photos.values_list("title", flat=True)) == ["y", "z"]
        transaction.set_rollback(True)


def test_admin(server: TicketServer, migrated: Callable[[str], None], pictures: Any) -> None:
    """Add an album with photos in line, look at them, change them, delete them."""
    from django.contrib.auth.models import User

    migrated("default")
    with transaction.atomic():
        browser = Client()
        browser.force_login(User.objects.create_superuser("admin", password="only-for-tests"))
        page = "/admin/django_pictures/album/"
        shown = browser.get(f"{page}add/")
        assert b'name="title"' in shown.content
        assert b'name="id"' not in shown.content
        forms = {"photos-TOTAL_FORMS": "2", "photos-INITIAL_FORMS": "0"}
        added = browser.post(f"{page}add/", {"title": "a", **forms, "photos-0-title": "x", "photos-1-title": "y"})
        assert added.status_code == 302, added.content
        album = pictures.Album.objects.get()
        assert album.photos.count() == 2
        assert str(album.pk).encode() in browser.get(page).content
        before = requests(server)
        assert b"Photo object" in browser.get(f"{page}{album.pk}/change/").content
        assert requests(server) - before < 10  # some for the forms of further photos: gaps
        first, second = album.photos.all()
        forms = {"photos-TOTAL_FORMS": "2", "photos-INITIAL_FORMS": "2", "photos-1-DELETE": "on"}
        for index, photo in enumerate((first, second)):
            forms |= {
                f"photos-{index}-number": photo.pk,
                f"photos-{index}-album": album.pk,
                f"photos-{index}-title": "z",
            }
        changed = browser.post(f"{page}{album.pk}/change/", {"title": "b", **forms})
        assert changed.status_code == 302, changed.content
        assert list(pictures.Album.objects.values_list("pk", "title")) == [(album.pk, "b")]
        assert list(album.photos.values_list("pk", "title")) == [(first.pk, "z")]
        browser.post(f"{page}{album.pk}/delete/", {"post": "yes"})
        assert not pictures.Photo.objects.exists()
        transaction.set_rollback(True)


def test_editable_one_is_shown(server: TicketServer) -> None:
    field = TicketField(sequence="photos", editable=True)
    assert field.formfield() is not None
    assert "'editable': True" in str(field.deconstruct())


# -- migrations


def test_migration_names_the_sequence_and_no_default(server: TicketServer, written: Path) -> None:
    text = written.read_text()
    assert "ticketd_client.django.TicketField(primary_key=True, sequence='photos', serialize=False)" in text
    assert "ticketd_client.django.TicketField(primary_key=False, sequence='offline_tasks', unique=True)" in text
    assert "default=" not in text.replace("default=90", "").replace("default=2", "")
    call_command("makemigrations", "django_pictures", check=True, dry_run=True, verbosity=0)  # nothing has changed


@pytest.mark.parametrize(
    "field",
    [
        TicketField(sequence="photos"),
        TicketField(sequence="photos", primary_key=False, null=True, editable=True, blank=False, db_column="n"),
        TicketField("the number", sequence="photos", help_text="a number"),
    ],
)
def test_deconstructed_field_can_be_made_again(field: Any) -> None:
    name, path, args, kwargs = field.deconstruct()
    assert (name, path) == (None, "ticketd_client.django.TicketField")
    again = TicketField(*args, **kwargs)
    assert (
        again.deconstruct() == field.deconstruct() == field.clone().deconstruct() == copy.deepcopy(field).deconstruct()
    )
    assert (again.sequence, again.editable, again.blank) == (field.sequence, field.editable, field.blank)


@pytest.mark.parametrize("kind", KINDS)
def test_table_that_the_database_numbered_changes_over(server: TicketServer, kind: str) -> None:
    """From BigAutoField to TicketField and back, with rows, and rows of another table that refer to them."""
    connection = connections[kind]
    operations = [
        migrations.CreateModel("Old", [("id", models.BigAutoField(primary_key=True)), ("name", models.TextField())]),
        migrations.CreateModel(
            "Child",
            [
                ("id", models.BigAutoField(primary_key=True)),
                ("old", models.ForeignKey("changing.Old", models.CASCADE)),
            ],
        ),
    ]
    state = ProjectState()

    def apply(operation: Any) -> Any:
        nonlocal state
        before, state = state, state.clone()
        operation.state_forwards("changing", state)
        with connection.schema_editor(atomic=True) as editor:
            operation.database_forwards("changing", editor, before, state)
        return state.apps.get_model("changing", "Old").objects.using(kind)

    with takes(server, 0):
        for operation in operations:
            rows = apply(operation)
        kept = rows.create(name="a")
        state.apps.get_model("changing", "Child").objects.using(kind).create(old=kept)
        rows = apply(migrations.AlterField("Old", "id", TicketField(sequence="photos")))
        assert rows.get(name="a").pk == kept.pk
    with takes(server, 1):
        new = rows.model(name="b", id=None)
        new.pk = 10**12 + get_tickets().take("photos")
        new.save(using=kind)
    child = state.apps.get_model("changing", "Child").objects.using(kind)
    child.create(old=new)
    assert child.filter(old__name="b").count() == 1
    if kind != "sqlite":  # there each `integer primary key` is numbered
        with pytest.raises(DatabaseError), connection.cursor() as cursor:
            cursor.execute("INSERT INTO changing_old (name) VALUES ('c')")
    for name in ("Child", "Old"):
        with connection.schema_editor() as editor:
            editor.delete_model(state.apps.get_model("changing", name))


# -- without a server


def test_without_a_server_the_clients_own_exception(server: TicketServer, pictures: Any) -> None:
    with override_settings(TICKETD={"urls": ["http://127.0.0.1:9"], "timeout": 0.3}):
        with pytest.raises(TicketsUnavailable, match="127"):
            pictures.Photo(title="a")
        assert pictures.Photo(pk=7).pk == 7
        call_command("check", verbosity=0)


def test_ids_that_are_too_long(server: TicketServer) -> None:
    server.request("PUT", "/sequence/names", json={"kind": "ulid"})
    with pytest.raises(Exception, match="ids of the sequence names are too long"):
        TicketField(sequence="names").get_default()
