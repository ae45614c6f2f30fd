"""Tickets as the primary keys of SQLAlchemy's tables and models (2.0 and later, sync and async).

    tickets = Tickets(["http://10.0.0.1:8000", "http://10.0.0.2:8000"])

    class Photo(Base):
        __tablename__ = "photos"
        id: Mapped[int] = mapped_column(BigInteger, default=TicketDefault(tickets, "photos"), primary_key=True)

With `MappedAsDataclass` write `insert_default=` for `default=`, as for every other default of a column.
"""

from __future__ import annotations

import asyncio
import inspect
import secrets
import weakref
from collections.abc import Callable
from typing import Any, Union, cast

from sqlalchemy import Column, event, exc
from sqlalchemy.engine import Connection
from sqlalchemy.engine.default import DefaultExecutionContext
from sqlalchemy.orm import Mapper, object_session

from ticketd_client import AsyncTickets, TicketError, Tickets

__all__ = ["TicketDefault"]

AnyTickets = Union[Tickets, AsyncTickets]

_pickled: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
"""The Tickets of this process that a pickle names, by the name it has there."""


class TicketDefault:
    """A column's default: the next ticket of a sequence.

    An INSERT of many rows, and a flush of many objects of one class, asks for all its tickets in one go. Objects have
    theirs before the INSERT, so that databases without RETURNING take them many at a time as well. A table's column
    with this default is none that the database numbers (`autoincrement=False`), unless `autoincrement=True` says so.
    """

    def __init__(self, tickets: AnyTickets | Callable[[], AnyTickets], sequence: str) -> None:
        """`tickets`: Tickets, AsyncTickets (for async engines alone), or a function that returns them, called
        at each use.

        With Tickets an async engine's event loop never waits for a server: they are asked in a thread.
        """
        self.sequence = sequence
        self._given: Any = tickets

    def __repr__(self) -> str:
        return f"TicketDefault({self.sequence!r})"

    def __call__(self, context: Any) -> int | str:
        """SQLAlchemy asks here for one row after the other; `context` is that of the whole statement."""
        waiting: list[int | str] | None = _drawn.get(context, {}).get(id(self))
        if not waiting:
            try:
                waiting = self.take_many(context.root_connection, self._rows(context))
            except TicketError as error:
                raise _as_it_is(type(error))(*error.args) from error
            waiting.reverse()
            _drawn.setdefault(context, {})[id(self)] = waiting
        return waiting.pop()

    def take_many(self, connection: Connection, count: int) -> list[int | str]:
        """Take so many tickets for use on this connection."""
        tickets = self.tickets
        if inspect.iscoroutinefunction(tickets.take_many):
            if not connection.dialect.is_async:
                raise exc.InvalidRequestError(
                    f"{self!r} has AsyncTickets, and {connection.dialect.driver} is no async driver: give it Tickets"
                )
            return _wait(connection, lambda: tickets.take_many(self.sequence, count))
        if connection.dialect.is_async:
            return _wait(connection, lambda: asyncio.to_thread(tickets.take_many, self.sequence, count))
        return cast("list[int | str]", tickets.take_many(self.sequence, count))

    @property
    def tickets(self) -> Any:
        """Where the tickets come from: Tickets or AsyncTickets."""
        if self._given is None:
            raise exc.InvalidRequestError(
                f"{self!r} comes from another process's pickle, without its Tickets. "
                "Give TicketDefault a module's function that returns Tickets: a pickle keeps its name"
            )
        if not hasattr(self._given, "take_many"):
            return self._given()
        return self._given

    def _rows(self, context: DefaultExecutionContext) -> int:
        """How many tickets the statement wants of this default."""
        compiled: Any = context.compiled
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

    # -- copies of tables share the default; a pickle names its Tickets and holds nothing of them, no token above all

    def __deepcopy__(self, memo: dict[int, Any]) -> TicketDefault:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if self._given is None or not hasattr(self._given, "take_many"):
            return TicketDefault, (self._given, self.sequence)
        name = next((name for name, tickets in _pickled.items() if tickets is self._given), None)
        if name is None:
            name = secrets.token_hex(16)
            _pickled[name] = self._given
        return _unpickled, (name, self.sequence)


_drawn: weakref.WeakKeyDictionary[Any, dict[int, list[int | str]]] = weakref.WeakKeyDictionary()
"""The tickets of the statements under way that no row has got yet, by their contexts and defaults."""


def _unpickled(name: str, sequence: str) -> TicketDefault:
    return TicketDefault(cast("Any", _pickled.get(name)), sequence)


def _of(default: Any) -> TicketDefault | None:
    """The TicketDefault in a column's default, if that is what it is."""
    argument = getattr(default, "arg", None)
    return argument if isinstance(argument, TicketDefault) else None


_unwrapped: dict[type[TicketError], type[TicketError]] = {}
"""The client's exceptions in a form that SQLAlchemy does not wrap."""


def _as_it_is(kind: type[TicketError]) -> type[TicketError]:
    """The exception as one that SQLAlchemy lets through; others it makes a StatementError. Pickled, it is `kind`."""
    inside = {"__module__": kind.__module__, "__doc__": kind.__doc__, "__reduce__": lambda self: (kind, self.args)}
    return _unwrapped.setdefault(kind, type(kind.__name__, (kind, exc.DontWrapMixin), inside))


def _wait(connection: Connection, start: Callable[[], Any]) -> list[int | str]:
    """Await something from within a statement on an async engine."""
    driver: Any = connection.connection.dbapi_connection
    return cast("list[int | str]", driver.run_async(lambda _: start()))


@event.listens_for(Column, "after_parent_attach")
def _no_numbers_of_the_database(column: Column[Any], parent: Any) -> None:
    """Without this a migration would write the column as one that the database numbers."""
    if _of(column.default) and column.autoincrement == "auto":
        column.autoincrement = False


@event.listens_for(Mapper, "mapper_configured")
def _before_inserts(mapper: Mapper[Any], class_: type[Any]) -> None:
    """Have the objects of a mapped class get their tickets at the start of a flush, if a column of it takes any."""
    for table in mapper.tables:
        for column in table.columns:
            default = _of(column.default)
            if default is not None and mapper.columns.contains_column(column):
                _fill_in_flush(mapper, mapper.get_property_by_column(column).key, default)


def _fill_in_flush(mapper: Mapper[Any], key: str, default: TicketDefault) -> None:
    """The first object of the class in a flush gets tickets for all that have none."""

    @event.listens_for(mapper, "before_insert")
    def fill(mapper: Mapper[Any], connection: Connection, target: Any) -> None:
        if target.__dict__.get(key) is not None:
            return
        session = object_session(target)
        new = [] if session is None else [each for each in session.new if type(each) is type(target)]
        empty = [each for each in new if each is not target and each.__dict__.get(key) is None]
        empty.append(target)
        for each, ticket in zip(empty, default.take_many(connection, len(empty))):
            setattr(each, key, ticket)
