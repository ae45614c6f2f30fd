"""Tickets as the primary keys of Django's models.

    # settings.py
    TICKETD = {"urls": ["http://10.0.0.1:8000", "http://10.0.0.2:8000"]}

    # models.py
    class Photo(models.Model):
        id = TicketField(sequence="photos")

`TICKETD` takes what `ticketd_client.Tickets` takes: `urls`, and if need be `token`, `prefetch`, `max_age`, `timeout`,
`tls`. Nothing has to be added to `INSTALLED_APPS`. `manage.py check` looks at both.
"""

from __future__ import annotations

import os
import re
import threading
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError
from django.core.signals import setting_changed
from django.db import models
from django.db.migrations import AddField
from django.db.models.signals import class_prepared, pre_init, pre_migrate
from django.dispatch import receiver

from ticketd_client import Tickets

__all__ = ["TicketField", "get_tickets"]

KEYS = ("urls", "token", "prefetch", "max_age", "timeout", "tls")
"""What `settings.TICKETD` may have."""

_SEQUENCE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")


# -- the Tickets of this process


def _settings() -> dict[str, Any]:
    """`settings.TICKETD`, with the keys that it has to have and no others."""
    given = getattr(settings, "TICKETD", None)
    if given is None:
        raise ImproperlyConfigured('settings.TICKETD is missing: TICKETD = {"urls": ["http://127.0.0.1:8000"]}')
    if not isinstance(given, dict):
        raise ImproperlyConfigured(f"settings.TICKETD is a dict, not a {type(given).__name__}")
    unknown = sorted(str(key) for key in given if key not in KEYS)
    if unknown:
        raise ImproperlyConfigured(f"settings.TICKETD has no {', '.join(unknown)}: it may have {', '.join(KEYS)}")
    urls = given.get("urls")
    if not isinstance(urls, (list, tuple)) or not urls or not all(isinstance(url, str) for url in urls):
        raise ImproperlyConfigured('settings.TICKETD["urls"] is a list of at least one URL')
    return {**given, "urls": list(urls)}


def _made() -> Tickets:
    try:
        return Tickets(**_settings())
    except (TypeError, ValueError) as error:
        raise ImproperlyConfigured(f"settings.TICKETD: {error}") from error


_lock = threading.Lock()
_tickets: Tickets | None = None


def get_tickets() -> Tickets:
    """The Tickets of `settings.TICKETD`, one for all fields of this process, made when they are first asked for.

    A process that this one forks has them too; no ticket is handed out in both.
    """
    global _tickets  # noqa: PLW0603 - one for the process is what is wanted
    tickets = _tickets
    if tickets is None:
        with _lock:
            if _tickets is None:
                _tickets = _made()
            tickets = _tickets
    return tickets


def _forked() -> None:
    """In a child: another thread of the parent may have held the lock, and is not here to release it."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


@receiver(setting_changed)
def _settings_changed(*, setting: str, **_: Any) -> None:
    """A test that overrides TICKETD gets Tickets made from that."""
    global _tickets
    if setting == "TICKETD":
        with _lock:
            old, _tickets = _tickets, None
        if old is not None:
            old.close()


@checks.register("ticketd")
def check_settings(**_: Any) -> list[checks.CheckMessage]:
    """ticketd.E001: TICKETD is missing, or is not what it should be. No server is asked."""
    try:
        get_tickets()
    except ImproperlyConfigured as error:
        return [checks.Error(str(error), id="ticketd.E001")]
    return []


# -- the field


class _Ticket:
    """A field's default: a ticket of its sequence."""

    def __init__(self, sequence: str) -> None:
        self.sequence = sequence

    def __call__(self) -> int:
        ticket = get_tickets().take(self.sequence)
        if not isinstance(ticket, int):
            raise ImproperlyConfigured(
                f"the ids of the sequence {self.sequence} are too long for a TicketField: "
                "it holds 63 bits. Give it a sequence of another kind"
            )
        return ticket


class TicketField(models.BigIntegerField):
    """A primary key of 64 bits that has its value, a ticket of `sequence`, when its object has been constructed.

    It is to forms, the admin and serializers what BigAutoField is, and in the database a plain `bigint` that nothing
    numbers. An object that is given its key, as those of fixtures are, and one that is read from the database take no
    ticket. One that is constructed and not saved leaves a gap. A key of None is filled when the object is saved.

    With `primary_key=False` it is a number beside another key.
    """

    description = "A ticket of a ticket server"

    def __init__(self, *args: Any, sequence: str, **kwargs: Any) -> None:
        """`sequence`: its name on the ticket server. All else is as for BigIntegerField, but there is no `default`."""
        for name in ("default", "db_default"):
            if name in kwargs:
                raise TypeError(f"TicketField takes no {name}: its default is the next ticket of its sequence")
        self.sequence = sequence
        kwargs.setdefault("primary_key", True)
        kwargs.setdefault("editable", False)
        kwargs.setdefault("blank", True)
        super().__init__(*args, default=_Ticket(sequence), **kwargs)

    def deconstruct(self) -> tuple[str, str, list[Any], dict[str, Any]]:
        """What a migration writes: the sequence, and of the rest what is not as we make it."""
        name, path, args, kwargs = super().deconstruct()
        del kwargs["default"]
        for key in ("editable", "blank"):
            kwargs.pop(key, None)
        if self.editable:
            kwargs["editable"] = True
        if not self.blank:
            kwargs["blank"] = False
        kwargs["primary_key"] = self.primary_key
        kwargs["sequence"] = self.sequence
        return name, path, args, kwargs

    def check(self, **kwargs: Any) -> list[checks.CheckMessage]:
        """ticketd.E002: no server can have a sequence of that name."""
        found: list[checks.CheckMessage] = super().check(**kwargs)
        if not (isinstance(self.sequence, str) and _SEQUENCE.fullmatch(self.sequence)):
            found.append(
                checks.Error(
                    f"{self.sequence!r} cannot be the name of a sequence.",
                    hint="A letter, then letters, digits and _, 64 characters at most.",
                    obj=self,
                    id="ticketd.E002",
                )
            )
        return found


# -- rows that are there already


@receiver(pre_migrate)
def _rows_get_no_common_ticket(*, apps: Any, plan: Any, using: str, **_: Any) -> None:
    """Refuse to add a field to a table with rows: Django asks for one default, and gives it to all of them."""
    for migration, backwards in plan:
        for operation in () if backwards else migration.operations:
            if not isinstance(operation, AddField) or not isinstance(operation.field, TicketField):
                continue
            try:
                model = apps.get_model(migration.app_label, operation.model_name)
            except LookupError:  # this plan makes it
                continue
            if model._base_manager.using(using).exists():
                raise CommandError(
                    f"{migration}: {model._meta.label} has rows, and all of them would get one ticket as "
                    f"{operation.name!r}. Take three steps: add it as BigIntegerField(null=True); in a RunPython, give "
                    f"each row a ticket: row.{operation.name} = get_tickets().take({operation.field.sequence!r}); "
                    "then make it the TicketField."
                )


# -- keys that are given


@receiver(class_prepared)
def _model_prepared(sender: type[models.Model], **_: Any) -> None:
    if any(isinstance(field, TicketField) for field in sender._meta.concrete_fields):
        pre_init.connect(_key_given, sender=sender)


def _key_given(sender: type[models.Model], args: tuple[Any, ...], kwargs: dict[str, Any], **_: Any) -> None:
    """Have a key that an object is given under another name reach its TicketField, so that no ticket is drawn for it.

    Such names are `pk`, and the link to the parent of a model that inherits: fixtures have the key there.
    """
    if args or not kwargs:
        return
    key = sender._meta.pk
    if "pk" in kwargs and key.attname != "pk" and key.attname not in kwargs and key.name not in kwargs:
        kwargs[key.attname] = kwargs.pop("pk")
    _pass_up(sender, kwargs)


def _pass_up(model: type[models.Model], kwargs: dict[str, Any]) -> None:
    """Give the parents of an inheriting model the keys that their links have."""
    for parent, link in model._meta.parents.items():
        if link is None or link.model is not model:
            continue
        name = parent._meta.pk.attname
        if name not in kwargs and link.attname in kwargs:
            kwargs[name] = kwargs[link.attname]
        elif name not in kwargs and isinstance(kwargs.get(link.name), models.Model):
            kwargs[name] = kwargs[link.name].pk
        _pass_up(parent, kwargs)
