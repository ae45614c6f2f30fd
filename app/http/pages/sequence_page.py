"""The page of one sequence: its kind, its position on each ticket database, its rate, and examples to copy."""

import time
from functools import partial
from typing import Any

from app.http.pages.address import Address
from app.http.pages.examples import Drawn, examples
from app.http.pages.formats import MINUTES, clock
from app.http.pages.page import Page, asset, page
from app.http.pages.rows import Row, parameters_of
from app.http.pages.runbooks import documentation, runbook_of
from app.operations.admin import Admin
from app.operations.rates import Rates

_SCRIPT = asset("status.js")


class SequencePage:
    """Renders what `GET /sequence/{sequence}` answers, and the rate.

    `redis_port`: None if this server does not speak the Redis protocol.
    """

    def __init__(self, admin: Admin, rates: Rates, redis_port: int | None) -> None:
        self._admin = admin
        self._rates = rates
        self._redis_port = redis_port

    async def render(self, name: str, address: Address, *, needs_token: bool) -> Page:
        """The page. `address`: of this server, for the examples. `needs_token`: whether a client needs a token to draw.

        Raises UnknownSequence.
        """
        found = await self._admin.sequence(name)
        await self._admin.refresh_warnings()
        name, now = found["sequence"], time.time()
        rate = self._rates.of(name)
        gives_tickets = found["kind"] == "ticket"
        drawn = Drawn(name, gives_tickets, "shards" in found, found["bits"], needs_token)
        return page(
            "sequence.html",
            _SCRIPT,
            forms="'self'",
            name=name,
            found=found,
            facts=_facts(found),
            databases=found["databases"] if gives_tickets else [],
            row=Row.of(found, rate, now),
            peak=max(rate.history, default=0.0),
            minutes=MINUTES,
            warnings=[each for each in self._admin.health()["warnings"] if each["sequence"] == name],
            runbook=partial(runbook_of, base=documentation()),
            examples=examples(drawn, address, self._redis_port),
            clock=clock(now),
        )


def _facts(found: dict[str, Any]) -> dict[str, str]:
    """The kind, its parameters and what follows from them, by name."""
    ceiling, ends = found["ceiling"], found.get("ends")
    return {
        "kind": found["kind"],
        "length of an id": f"{found['bits']} bits",
        **parameters_of(found),
        "unique": found["unique"],
        **({"odds of equal ids": found["odds"]} if "odds" in found else {}),
        **({} if ceiling is None else {"largest id": f"{ceiling:,}"}),
        **({} if ends is None else {"its time ends": ends}),
    }
