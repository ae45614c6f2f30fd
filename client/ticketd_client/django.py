"""Tickets as the primary keys of Django's models.

    # settings.py
    TICKETD = {"urls": ["http://10.0.0.1:8000", "http://10.0.0.2:8000"]}

    # models.py
    class Photo(models.Model):
        id = TicketField(sequence="photos")

`TICKETD` takes what `ticketd_client.Tickets` takes. `manage.py check` looks at it.
"""

from __future__ import annotations

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

_tickets: dict[str, Tickets] = {}  # of TICKETD, once they are made; `setdefault` takes no lock


def get_tickets() -> Tickets:
    """The Tickets of `settings.TICKETD`, one for all fields of this process. Raises ImproperlyConfigured."""
    try:
        return _tickets.get("TICKETD") or _tickets.setdefault("TICKETD", Tickets(**settings.TICKETD))
    except (AttributeError, TypeError, ValueError) as error:
        raise ImproperlyConfigured(f'settings.TICKETD, as in {{"urls": ["http://127.0.0.1:8000"]}}: {error}') from error


@receiver(setting_changed)
def _settings_changed(*, setting: str, **_: Any) -> None:
    """A test that overrides TICKETD gets Tickets made from that."""
    old = _tickets.pop(setting, None)
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


class TicketField(models.BigIntegerField):
    """A primary key of 64 bits that has its value, a ticket of `sequence`, when its object has been constructed.

    An object that is given its key takes no ticket. One that is not saved leaves a gap. A key of None is filled when
    the object is saved. With `primary_key=False` it is a number beside another key.
    """

    def __init__(self, *args: Any, sequence: str, **kwargs: Any) -> None:
        """`sequence`: its name on the ticket server. All else is as for BigIntegerField, but there is no `default`."""
        for name in ("default", "db_default"):
            if name in kwargs:
                raise TypeError(f"TicketField takes no {name}: its default is the next ticket of its sequence")
        self.sequence = sequence
        super().__init__(
            *args, default=self._ticket, **{"primary_key": True, "editable": False, "blank": True, **kwargs}
        )

    def _ticket(self) -> int:
        ticket = get_tickets().take(self.sequence)
        if not isinstance(ticket, int):
            raise ImproperlyConfigured(
                f"the ids of the sequence {self.sequence} are too long for a TicketField: "
                "it holds 63 bits. Give it a sequence of another kind"
            )
        return ticket

    def deconstruct(self) -> tuple[str, str, list[Any], dict[str, Any]]:
        """What a migration writes: the sequence, and of the rest what is not as we make it."""
        name, path, args, kwargs = super().deconstruct()
        for key, ours in (("default", True), ("editable", not self.editable), ("blank", self.blank)):
            if ours:
                kwargs.pop(key, None)
            else:
                kwargs[key] = getattr(self, key)
        return name, path, args, {**kwargs, "primary_key": self.primary_key, "sequence": self.sequence}


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


@receiver(class_prepared)
def _model_prepared(sender: type[models.Model], **_: Any) -> None:
    if any(isinstance(field, TicketField) for field in sender._meta.concrete_fields):
        pre_init.connect(_key_given, sender=sender)


def _key_given(sender: type[models.Model], args: tuple[Any, ...], kwargs: dict[str, Any], **_: Any) -> None:
    """Have a key that is given as `pk`, or as the link to a parent, reach its TicketField, which then draws none."""
    if not args:
        if "pk" in kwargs:
            kwargs[sender._meta.pk.attname] = kwargs.pop("pk")
        _pass_up(sender, kwargs)


def _pass_up(model: type[models.Model], kwargs: dict[str, Any]) -> None:
    """Give the parents of an inheriting model the keys that their links have."""
    for parent, link in model._meta.parents.items():
        if link is not None and link.model is model:
            name = parent._meta.pk.attname
            if link.attname in kwargs:
                kwargs.setdefault(name, kwargs[link.attname])
            elif isinstance(kwargs.get(link.name), models.Model):
                kwargs.setdefault(name, kwargs[link.name].pk)
            _pass_up(parent, kwargs)
