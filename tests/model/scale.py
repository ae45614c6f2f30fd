"""How large a simulated world is, how its servers are set, and where its databases run."""

import random
from dataclasses import dataclass
from typing import Self

from app.databases.address import Address
from tests.fakes.server import Data, FakeServer

SEQUENCES = ("photos", "Accounts", "groups")


@dataclass(slots=True)
class Scale:
    """How large a world is, and how its servers are set.

    databases: entries of the list. increment: TICKETS_INCREMENT, None where it is not set. sequences: so many of
    SEQUENCES. interval, timeout, reserve: seconds, as in the settings. refuses: TICKETS_UNVERIFIED. stalls: how likely
    a server stands still before a callback. rate: requests a second of each server. seconds: how long faults happen.
    smallest_step, seconds_ahead: of a limit, in ids, and in seconds of the present rate.
    """

    databases: int = 2
    increment: int | None = None
    servers: int = 2
    sequences: int = 1
    interval: float = 1.0
    timeout: float = 0.5
    reserve: float = 0.0
    refuses: bool = False
    stalls: float = 0.0
    rate: float = 10.0
    seconds: float = 30.0
    like_mysql: bool = False
    smallest_step: int = 1000
    seconds_ahead: float = 10.0

    @classmethod
    def of(cls, seed: int | str) -> Self:
        """Return the scale of this seed."""
        chance = random.Random(f"{seed} scale")
        databases = chance.choice((2, 2, 3))
        return cls(
            databases=databases,
            increment=chance.choice((None, None, databases, databases + 2)),
            servers=chance.choice((2, 2, 3)),
            sequences=chance.choice((1, 1, 2, 3)),
            interval=chance.choice((0.3, 1.0, 1.0, 1.0, 5.0)),
            reserve=chance.choice((0.0, 0.0, 2.0)),
            refuses=chance.random() < 0.15,
            stalls=chance.choice((0.0, 0.0003, 0.002)),
            rate=chance.choice((3.0, 10.0, 10.0, 30.0)),
            seconds=chance.uniform(10.0, 45.0),
            like_mysql=chance.choice((True, False)),
            smallest_step=chance.choice((10, 100, 1000)),
            seconds_ahead=chance.choice((0.0, 10.0)),
        )


class Place:
    """An address where a ticket database runs, with the states that it may come back to."""

    def __init__(self, address: Address, offset: int, server: FakeServer) -> None:
        self.address, self.offset, self.server = address, offset, server
        self.saved: list[Data] = []

    @property
    def name(self) -> str:
        """host:port."""
        return self.address.name

    def __repr__(self) -> str:
        return self.name
