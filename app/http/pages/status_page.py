"""The status page. The server renders it; a short script fetches it again every few seconds."""

import datetime
import math
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from markupsafe import Markup

from app.clients.turns import Turns
from app.common.errors import TicketError
from app.common.slices import in_slices
from app.common.version import VERSION
from app.http.pages.formats import MINUTES, Sparkline, clock
from app.http.pages.page import Page, asset, page, render
from app.http.pages.rows import Row
from app.http.pages.runbooks import documentation, runbook_of
from app.http.pages.sequence_order import SequenceOrder
from app.http.pages.status_query import SORTS, AskedId, StatusQuery
from app.kinds.table import DECODE_PARAMETERS, KINDS
from app.operations.admin import Admin
from app.operations.metrics import Metrics
from app.operations.rates import Rates
from app.operations.recent_requests import FAILED, RECENT_SECONDS, RecentRequests

SHOWN = 100
"""How many sequences one page shows."""
ROWS_AT_ONCE = 5
"""How many rows are rendered in one turn of the event loop: about a millisecond."""
_SCRIPT = asset("status.js")


class StatusPage:
    """Renders what `Admin` and `Rates` know; asks no database."""

    def __init__(self, admin: Admin, rates: Rates, metrics: Metrics, turns: Turns, port: int) -> None:
        self._admin = admin
        self._rates = rates
        self._metrics = metrics
        self._turns = turns
        self._recent = RecentRequests(metrics)
        rates.at_each_sample.append(self._recent.sample)
        self._order = SequenceOrder(admin, rates, turns, SHOWN)
        self._server = f"{socket.gethostname()}:{port}"
        self._started = time.time()

    async def render(self, query: StatusQuery) -> Page:
        """The page as of now, with the sequences and the id that the query asks for."""
        now = time.time()
        said, unread = await self._read(query.asked)
        await self._admin.refresh_warnings()
        health = self._admin.health()
        names = await self._names(query, health["warnings"])
        await self._turns.wait_for_another()
        number = min(query.number, math.ceil(len(names) / SHOWN) or 1)
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
            recent=self._recent.now,
            recent_seconds=RECENT_SECONDS,
            count=self._admin.count,
            warnings=health["warnings"],
            runbook=partial(runbook_of, base=documentation()),
            embedded=health.get("embedded", False),
            databases=[_database(each, now) for each in health["databases"]],
            servers=self._servers(health),
            older_servers=self._admin.older_servers,
            query=query,
            sorts=SORTS,
            rows=await self._rows(names[(number - 1) * SHOWN : number * SHOWN], now),
            pager=_pager(len(names), query, number),
            worker=self._admin.worker,
            instance_number=self._admin.instance_number,
            kinds=KINDS,
            parameters=DECODE_PARAMETERS,
            said=said,
            unread=unread,
        )

    async def _read(self, asked: AskedId) -> tuple[dict[str, Any], str]:
        """The reading of the id and the error. The reading is empty without an id, or if the id cannot be read."""
        if not asked.id_text:
            return {}, ""
        if bool(asked.of) is bool(asked.kind):
            return {}, "Name the sequence of the id, or its kind if it was made elsewhere."
        try:
            if asked.kind:
                return self._admin.decoding.of_elsewhere(asked.kind, asked.numbers, asked.id_text), ""
            return await self._admin.decoding.of_sequence(asked.of, asked.id_text), ""
        except TicketError as error:
            return {}, str(error)

    async def _names(self, query: StatusQuery, warnings: Sequence[dict[str, Any]]) -> list[str]:
        """The names that the query asks for, in its order."""
        names = await self._order.names(query.search, query.sort)
        if not query.warned:
            return names
        warned = {each["sequence"] for each in warnings}
        return [name for name in names if name in warned]

    def _servers(self, health: dict[str, Any]) -> dict[str, list[str]]:
        """All ticket servers, this one first, and the databases that each reaches."""
        others = self._admin.other_servers
        others.pop(self._server, None)  # an earlier life of this server, whose announcement still stands
        return {self._server: [each["name"] for each in health["databases"] if each["status"] == "up"], **others}

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
        failed = sum(outcomes.get(each, 0) for each in FAILED)
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
    """Which of all sequences are shown, in which order, and the addresses of the pages before and after."""

    first: int
    last: int
    count: int
    order: str
    previous: str | None
    next: str | None


def _pager(count: int, query: StatusQuery, number: int) -> _Pager | None:
    """None where one page shows all of them."""
    pages = math.ceil(count / SHOWN)
    if pages <= 1:
        return None

    def address(to: int) -> str | None:
        return query.page(to) if 1 <= to <= pages else None

    first, last = (number - 1) * SHOWN + 1, min(count, number * SHOWN)
    order = SORTS.get(query.sort, "sequences in use first")
    return _Pager(first, last, count, order, address(number - 1), address(number + 1))


def _database(each: dict[str, Any], now: float) -> dict[str, Any]:
    """A database as /healthz reports it, and for how long it has had its status."""
    return {**each, "age": now - datetime.datetime.fromisoformat(each["since"]).timestamp()}
