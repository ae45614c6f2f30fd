"""Examples that a reader copies from the page of a sequence. Each runs as it stands once TOKEN is replaced."""

import shlex
from dataclasses import dataclass

from app.http.pages.address import Address
from app.kinds.kind import NUMBER_BITS

_BLOCK, _KEY = 100, 31341
"""The size of a block and the key in the examples."""


@dataclass(frozen=True, slots=True)
class Example:
    """One way to draw from a sequence. `note`: what a reader needs first, empty where that is nothing."""

    title: str
    text: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Drawn:
    """The sequence that the examples draw from.

    Args:
        name: The sequence's name.
        has_blocks: Whether it gives blocks.
        has_shards: Whether a client may name a shard.
        bits: The length of its ids.
        needs_token: Whether this server asks for a token.
    """

    name: str
    has_blocks: bool
    has_shards: bool
    bits: int
    needs_token: bool

    @property
    def is_text(self) -> bool:
        """Whether clients get the ids as strings."""
        return self.bits > NUMBER_BITS + 1


def examples(drawn: Drawn, address: Address, redis_port: int | None) -> list[Example]:
    """All of them. `redis_port`: None if this server does not speak the Redis protocol."""
    return [
        Example("curl", _curl(drawn, address)),
        _redis(drawn, address, redis_port),
        Example("Python", _python(drawn, address), "Requires ticketd-client."),
        Example("SQLAlchemy", _sqlalchemy(drawn, address), "Requires ticketd-client[sqlalchemy]."),
        Example("Django", _django(drawn, address), "Requires ticketd-client[django]."),
    ]


def _curl(drawn: Drawn, address: Address) -> str:
    token = ["-H", "Authorization: Bearer TOKEN"] if drawn.needs_token else []
    targets = [f"/ticket/{drawn.name}", f"/ticket/{drawn.name}?count=5"]
    if drawn.has_shards:
        targets.append(f"/ticket/{drawn.name}?key={_KEY}")
    if drawn.has_blocks:
        targets.append(f"/block/{drawn.name}?size={_BLOCK}")
    return "\n".join(shlex.join(["curl", *token, address.url + target]) for target in targets)


def _redis(drawn: Drawn, address: Address, port: int | None) -> Example:
    if port is None:
        return Example("redis-cli", "", "This server does not speak the Redis protocol: TICKETS_REDIS_PORT is unset.")
    program = ["redis-cli", "-h", address.bare_host, "-p", str(port)]
    commands = [["INCR", drawn.name], ["TICKET.TAKE", drawn.name, "COUNT", "5"]]
    if drawn.has_shards:
        commands.append(["TICKET.TAKE", drawn.name, "COUNT", "1", "KEY", str(_KEY)])
    if drawn.has_blocks:
        commands.append(["TICKET.BLOCK", drawn.name, str(_BLOCK)])
    token = "REDISCLI_AUTH=TOKEN " if drawn.needs_token else ""
    return Example("redis-cli", "\n".join(token + shlex.join([*program, *command]) for command in commands))


def _python(drawn: Drawn, address: Address) -> str:
    lines = [
        "from ticketd_client import Tickets",
        "",
        f"with Tickets({_given(drawn, address)}) as tickets:",
        f'    print(tickets.take("{drawn.name}"))',
        f'    print(tickets.take_many("{drawn.name}", 5))',
    ]
    if drawn.has_shards:
        lines.append(f'    print(tickets.take("{drawn.name}", key={_KEY}))')
    return "\n".join(lines)


def _sqlalchemy(drawn: Drawn, address: Address) -> str:
    python_type, column = ("str", "String(36)") if drawn.is_text else ("int", "BigInteger")
    return f"""from sqlalchemy import {column.partition("(")[0]}
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from ticketd_client import Tickets
from ticketd_client.sqlalchemy import TicketDefault

tickets = Tickets({_given(drawn, address)})


class Base(DeclarativeBase):
    pass


class Item(Base):
    __tablename__ = "items"
    id: Mapped[{python_type}] = mapped_column(
        {column}, default=TicketDefault(tickets, "{drawn.name}"), primary_key=True
    )"""


def _django(drawn: Drawn, address: Address) -> str:
    token = ', "token": "TOKEN"' if drawn.needs_token else ""
    settings = f'# settings.py\nTICKETD = {{"urls": ["{address.url}"]{token}}}\n\n# models.py\n'
    if not drawn.is_text:
        return f"""{settings}from django.db import models
from ticketd_client.django import TicketField


class Item(models.Model):
    id = TicketField(sequence="{drawn.name}")"""
    return f"""{settings}from django.db import models
from ticketd_client.django import get_tickets


def next_id():
    return get_tickets().take("{drawn.name}")


class Item(models.Model):
    id = models.CharField(primary_key=True, max_length=36, default=next_id)"""


def _given(drawn: Drawn, address: Address) -> str:
    """The arguments of `Tickets`."""
    return f'["{address.url}"]' + (', token="TOKEN"' if drawn.needs_token else "")
