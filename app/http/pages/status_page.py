"""The status page. The server renders it; a short script fetches it again every few seconds."""

import datetime
import math
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup

from app.clients.turns import Turns
from app.common.errors import TicketError
from app.common.slices import in_slices
from app.common.version import VERSION
from app.http.pages.formats import MINUTES, Sparkline, clock
from app.http.pages.page import Page, asset, page, render
from app.http.pages.rows import Row
from app.operations.admin import Admin
from app.operations.metrics import Metrics
from app.operations.rates import Rates

SHOWN = 100
"""How many sequences one page shows."""
ROWS_AT_ONCE = 5
"""How many rows are rendered in one turn of the event loop: about a millisecond."""
LARGEST_NUMBER = 999_999
"""Of a page."""
_SCRIPT = asset("status.js")


class StatusPage:
    """Renders what `Admin` and `Rates` know; asks no database."""

    def __init__(self, admin: Admin, rates: Rates, metrics: Metrics, turns: Turns, port: int) -> None:
        self._admin = admin
        self._rates = rates
        self._metrics = metrics
        self._turns = turns
        self._server = f"{socket.gethostname()}:{port}"
        self._started = time.time()

    async def render(self, search: str = "", number: int = 1, of: str = "", id_text: str = "") -> Page:
        """Page `number`, as of now, of the sequences whose names contain `search`. Where a sequence `of` and an id are
        given, what that says."""
        now = time.time()
        said, unread = await self._read(of.strip(), id_text.strip())
        await self._admin.refresh_warnings()
        health = self._admin.health()
        names = self._in_order(search)
        await self._turns.wait_for_another()
        number = min(number, math.ceil(len(names) / SHOWN) or 1)
        total = self._rates.total()
        return page(
            "status.html",
            _SCRIPT,
            forms="'self'",
            server=self._server,
            version=VERSION,
            process=os.getpid(),
            uptime=now - self._started,
            clock=clock(now),
            headline=self._headline(health),
            state="warn" if self._admin.draining else health["status"],
            total=total,
            peak=max(total.history, default=0.0),
            minutes=MINUTES,
            line=Sparkline.of(total.history),
            issued=self._admin.issued,
            **self._requests(),
            count=self._admin.count,
            warnings=health["warnings"],
            embedded=health.get("embedded", False),
            databases=[_database(each, now) for each in health["databases"]],
            search=search,
            rows=await self._rows(names[(number - 1) * SHOWN : number * SHOWN], now),
            pager=_pager(len(names), search, number),
            worker=self._admin.worker,
            instance_number=self._admin.instance_number,
            of=of,
            id_text=id_text,
            said=said,
            unread=unread,
        )

    async def _read(self, of: str, id_text: str) -> tuple[dict[str, Any], str]:
        """What the id says, empty where it is not asked for or cannot be read; and why it cannot."""
        if not of or not id_text:
            return {}, ""
        try:
            return await self._admin.decoding.of_sequence(of, id_text), ""
        except TicketError as error:
            return {}, str(error)

    def _in_order(self, search: str) -> list[str]:
        """Sorted by name. If one page cannot show them all, those in use come first, the fastest at the top."""
        names = self._admin.names(search)
        if len(names) <= SHOWN:
            return names
        rest = dict.fromkeys(names)
        first = [name for name in self._rates.busiest if rest.pop(name, name) is None]
        return [*first, *rest]

    def _headline(self, health: dict[str, Any]) -> str:
        if self._admin.draining:
            return "Draining"
        if health["status"] == "warn":
            away = sum(each["status"] != "up" for each in health["databases"])
            return f"{away} of {len(health['databases'])} databases not up" if away else "Warnings"
        return "All well" if health["status"] == "pass" else "Not serving"

    def _requests(self) -> dict[str, int]:
        outcomes: dict[str, int] = {}
        for (_, outcome), count in self._metrics.requests.items():
            outcomes[outcome] = outcomes.get(outcome, 0) + count
        failed = sum(outcomes.get(each, 0) for each in ("unavailable", "timeout", "clock", "error"))
        return {"answered": outcomes.get("ok", 0), "failed": failed, "in_flight": self._metrics.in_flight}

    async def _rows(self, names: Sequence[str], now: float) -> Markup:
        """The rows of the table, rendered some at a time."""
        rendered: list[Markup] = []
        async for part in in_slices(names, ROWS_AT_ONCE, self._turns.wait_for_another):
            described = self._admin.described(part)
            rows = [Row.of(each, self._rates.of(each["sequence"]), now) for each in described]
            rendered.append(render("status_rows.html", rows=rows))
        return Markup().join(rendered)


@dataclass(frozen=True)
class _Pager:
    """Which of all sequences are shown, and the addresses of the pages before and after."""

    first: int
    last: int
    count: int
    previous: str | None
    next: str | None


def _pager(count: int, search: str, number: int) -> _Pager | None:
    """None where one page shows all of them."""
    pages = math.ceil(count / SHOWN)
    if pages <= 1:
        return None

    def address(to: int) -> str | None:
        query = urlencode({**({"search": search} if search else {}), "page": to})
        return f"/?{query}" if 1 <= to <= pages else None

    first, last = (number - 1) * SHOWN + 1, min(count, number * SHOWN)
    return _Pager(first, last, count, address(number - 1), address(number + 1))


def _database(each: dict[str, Any], now: float) -> dict[str, Any]:
    """What /healthz reports of it, and for how long it has had its status."""
    return {**each, "age": now - datetime.datetime.fromisoformat(each["since"]).timestamp()}
