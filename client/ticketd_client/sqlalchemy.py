"""Tickets as the primary keys of SQLAlchemy's tables and models (2.0 and later, sync and async).

    id: Mapped[int] = mapped_column(BigInteger, default=TicketDefault(tickets, "photos"), primary_key=True)

With `MappedAsDataclass` write `insert_default=` for `default=`, as for every other default of a column.
"""

from __future__ import annotations

import asyncio
import inspect
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from sqlalchemy import Column, event, exc
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Mapper, object_session

from ticketd_client import AsyncTickets, TicketError, Tickets

__all__ = ["TicketDefault"]
_drawn: weakref.WeakKeyDictionary[Any, dict[int, list[Any]]] = weakref.WeakKeyDictionary()
"""The tickets of the statements under way that no row has got yet, by their contexts and defaults."""


class TicketDefault:
    """A column's default: the next ticket of a sequence. The database does not number such a column by itself.

    An INSERT of many rows, and a flush of many objects of one class, asks for all its tickets in one go.
    """

    def __init__(self, tickets: Tickets | AsyncTickets | Callable[[], Any], sequence: str) -> None:
        """`tickets`: Tickets, AsyncTickets (for async engines only), or a function that returns them, called at each
        use. Only a module's function can be pickled. With Tickets on an async engine a thread asks the servers.
        """
        self.sequence = sequence
        self._given: Any = tickets

    def __repr__(self) -> str:
        return f"TicketDefault({self.sequence!r})"

    def __deepcopy__(self, memo: dict[int, Any]) -> TicketDefault:
        return self  # copies of tables share the tickets

    def __call__(self, context: Any) -> int | str:
        """SQLAlchemy asks here for one row after the other; `context` is that of the whole statement."""
        waiting = _drawn.setdefault(context, {}).setdefault(id(self), [])
        if not waiting:
            try:
                waiting += reversed(self.take_many(context.root_connection, self._rows(context)))
            except TicketError as error:
                raise _as_it_is(type(error))(*error.args) from error
        ticket: int | str = waiting.pop()
        return ticket

    def take_many(self, connection: Connection, count: int) -> list[Any]:
        """Take so many tickets for use on this connection."""
        take = (self._given if hasattr(self._given, "take_many") else self._given()).take_many
        if not connection.dialect.is_async:
            if inspect.iscoroutinefunction(take):
                raise exc.InvalidRequestError(
                    f"{self!r} has AsyncTickets, and {connection.dialect.driver} is no async driver: give it Tickets"
                )
            return list(take(self.sequence, count))
        if not inspect.iscoroutinefunction(take):
            take = partial(asyncio.to_thread, take)
        driver: Any = connection.connection.dbapi_connection
        return list(driver.run_async(lambda _: take(self.sequence, count)))

    def _rows(self, context: Any) -> int:
        """How many tickets the statement wants of this default."""
        compiled = context.compiled
        if compiled is None:  # connection.scalar(ColumnDefault(...))
            return 1
        if getattr(compiled.statement, "select", None) is not None:
            raise exc.CompileError(
                f"{self!r} cannot serve INSERT ... FROM SELECT: all rows would get one ticket. "
                "Select the column's value, or give include_defaults=False"
            )
        columns = [*compiled.insert_prefetch, *compiled.update_prefetch]
        mine = sum(1 for column in columns if self in (_of(column.default), _of(getattr(column, "onupdate", None))))
        return mine * len(context.compiled_parameters)


def _of(default: Any) -> TicketDefault | None:
    """The TicketDefault in a column's default, if that is what it is."""
    argument = getattr(default, "arg", None)
    return argument if isinstance(argument, TicketDefault) else None


def _as_it_is(kind: type[TicketError]) -> type[TicketError]:
    """The exception as one that SQLAlchemy lets through; others it makes a StatementError. Pickled, it is `kind`."""
    inside = {"__module__": kind.__module__, "__doc__": kind.__doc__, "__reduce__": lambda self: (kind, self.args)}
    return type(kind.__name__, (kind, exc.DontWrapMixin), inside)


@event.listens_for(Column, "after_parent_attach")
def _no_numbers_of_the_database(column: Column[Any], parent: Any) -> None:
    """Without this a migration would write the column as one that the database numbers."""
    if _of(column.default) and column.autoincrement == "auto":
        column.autoincrement = False


@event.listens_for(Mapper, "mapper_configured")
def _before_inserts(mapper: Mapper[Any], class_: type[Any]) -> None:
    """Have the first object of a mapped class in a flush get tickets for all that have none."""
    for column in (column for table in mapper.tables for column in table.columns):
        default = _of(column.default)
        if default is not None and mapper.columns.contains_column(column):
            key = mapper.get_property_by_column(column).key
            event.listen(mapper, "before_insert", partial(_fill, key, default))


def _fill(key: str, default: TicketDefault, mapper: Mapper[Any], connection: Connection, target: Any) -> None:
    if target.__dict__.get(key) is None:
        session = object_session(target)
        new = [each for each in session.new if type(each) is type(target)] if session else []
        empty = [target, *(each for each in new if each is not target and each.__dict__.get(key) is None)]
        for each, ticket in zip(empty, default.take_many(connection, len(empty))):
            setattr(each, key, ticket)
