"""The status page: what an operator looks at first. All of it is made here; a few lines of script fetch it again."""

import asyncio
import datetime
import math
import os
import socket
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from app.common.slices import in_slices
from app.common.version import VERSION
from app.http.pages import Page, asset, escape, page
from app.operations.admin import Overseer
from app.operations.metrics import Metrics
from app.operations.rates import SAMPLE_SECONDS, SAMPLES, Rate, Rates

SHOWN = 100
"""So many sequences are on one page."""
ROWS_AT_ONCE = 10
"""So many of them are written in one turn of the event loop: about a millisecond."""
LARGEST_NUMBER = 999_999
"""Of a page."""
_SCRIPT = asset("status.js")
_NO_SCRIPT = '<noscript><meta http-equiv="refresh" content="5"></noscript>\n'
_MINUTES = round(SAMPLE_SECONDS * (SAMPLES - 1) / 60)
_YEAR = 365.25 * 86400
_NONE = '<span class="none">–</span>'


class StatusPage:
    """Renders what the overseer and the rates know; looks at no database."""

    def __init__(self, overseer: Overseer, rates: Rates, metrics: Metrics, port: int) -> None:
        self._overseer = overseer
        self._rates = rates
        self._metrics = metrics
        self._server = f"{socket.gethostname()}:{port}"
        self._started = time.time()

    async def render(self, search: str = "", number: int = 1) -> Page:
        """The page as of now, with the sequences that hold `search`: so many to a page, and this page of them."""
        now = time.time()
        await self._overseer.look_over()
        health = self._overseer.health()
        headline = self._headline(health)
        names = self._in_order(search)
        await asyncio.sleep(0)
        body = "\n".join(
            [
                self._header(health, headline, now),
                '<main><div id="live">',
                self._summary(),
                _warnings(health["warnings"]),
                _databases(health["databases"], now),
                f"</div><section><h2>Sequences</h2>{_search_box(search)}",
                f'<div id="sequences">{await self._sequences(names, search, number, now)}</div>',
                "</section></main>",
                self._footer(now),
            ]
        )
        return page(f"{headline} · {self._server}", body, _SCRIPT, head=_NO_SCRIPT, forms="'self'")

    def _in_order(self, search: str) -> list[str]:
        """By name; where one page does not hold them, those in use first, the fastest at the top."""
        names = self._overseer.names(search)
        if len(names) <= SHOWN:
            return names
        rest = dict.fromkeys(names)
        first = [name for name in self._rates.busiest if rest.pop(name, name) is None]
        return [*first, *rest]

    def _headline(self, health: dict[str, Any]) -> str:
        if self._overseer.draining:
            return "Draining"
        if health["status"] == "warn":
            away = sum(each["status"] != "up" for each in health["databases"])
            return f"{away} of {len(health['databases'])} databases not up" if away else "Warnings"
        return "All well" if health["status"] == "pass" else "Not serving"

    def _header(self, health: dict[str, Any], headline: str, now: float) -> str:
        state = "warn" if self._overseer.draining else health["status"]
        return (
            f'<header id="head"><h1><span class="ticket" aria-hidden="true"></span>Tickets</h1>'
            f'<p class="server"><b>{escape(self._server)}</b> <span class="soft">version {escape(VERSION)}, '
            f"process {os.getpid()}, up {_span(now - self._started)}</span></p>"
            f'<p class="pill {escape(state)}" id="headline" role="status">{escape(headline)}</p></header>'
            '<p id="lost" role="alert" hidden>This server does not answer; what stands here is from before.</p>'
        )

    def _footer(self, now: float) -> str:
        return (
            f'<footer><span id="as-of">As of {_clock(now)} UTC</span>'
            '<nav><a href="/docs">API</a> <a href="/healthz">health</a> <a href="/metrics">metrics</a> '
            '<a href="/sequence">sequences</a></nav></footer>'
        )

    def _summary(self) -> str:
        total = self._rates.total()
        outcomes: dict[str, int] = {}
        for (_, outcome), count in self._metrics.requests.items():
            outcomes[outcome] = outcomes.get(outcome, 0) + count
        failed = sum(outcomes.get(each, 0) for each in ("unavailable", "timeout", "error"))
        facts = [
            ("tickets issued", _number(self._overseer.issued)),
            ("requests answered", _number(outcomes.get("ok", 0))),
            ("failed", _number(failed), "bad" if failed else ""),
            ("in flight", _number(self._metrics.in_flight)),
            ("sequences", _number(self._overseer.count)),
        ]
        return (
            '<section class="summary" aria-label="This server">'
            f'<div class="rate"><p class="big"><b id="rate">{_rate(total.now)}</b> <span>tickets/s</span></p>'
            f'<p class="soft">this server, last {_MINUTES} minutes; peak {_rate(max(total.history, default=0.0))}/s</p>'
            f"{_sparkline(total.history, 'wide')}</div><dl>"
            + "".join(
                f'<div><dt>{label}</dt><dd class="{" ".join(more)}">{value}</dd></div>' for label, value, *more in facts
            )
            + "</dl></section>"
        )

    async def _sequences(self, names: Sequence[str], search: str, number: int, now: float) -> str:
        if not names:
            said = (
                f"None has “{escape(search)}” in its name." if search else "There are none that this server knows of."
            )
            return f'<p class="soft">{said}</p>'
        pages = math.ceil(len(names) / SHOWN)
        number = min(number, pages)
        rows: list[str] = []
        async for part in in_slices(names[(number - 1) * SHOWN : number * SHOWN], ROWS_AT_ONCE):
            rows += [_sequence(each, self._rates.of(each["sequence"]), now) for each in self._overseer.described(part)]
        return (
            '<table class="sequences"><thead><tr><th>Name</th><th class="n">Rate here</th>'
            f'<th>Last {_MINUTES} min</th><th class="n">Last tickets</th><th class="n">Drift</th>'
            f"<th>Headroom</th><th>Ends</th></tr></thead><tbody>{''.join(rows)}</tbody></table>"
            f"{_pager(len(names), search, number, pages)}"
        )


def _search_box(search: str) -> str:
    everything = ' <a href="/">all of them</a>' if search else ""
    return (
        '<form class="search" action="/" role="search"><input type="search" name="search" maxlength="64" '
        f'aria-label="Part of a sequence\'s name" placeholder="part of a name" value="{escape(search)}">'
        f"<button>Find</button>{everything}</form>"
    )


def _pager(count: int, search: str, number: int, pages: int) -> str:
    """Which of them are shown, and the way to the others; nothing where all are."""
    if pages == 1:
        return ""

    def link(to: int, text: str, rel: str) -> str:
        if not 1 <= to <= pages:
            return f'<span class="none">{text}</span>'
        query = urlencode({**({"search": search} if search else {}), "page": to})
        return f'<a rel="{rel}" href="/?{escape(query)}">{text}</a>'

    first = (number - 1) * SHOWN + 1
    return (
        f'<nav class="pages" aria-label="Pages">{link(number - 1, "previous", "prev")}'
        f"<span>{_number(first)} to {_number(min(count, number * SHOWN))} of {_number(count)}, "
        f"those in use first</span>{link(number + 1, 'next', 'next')}</nav>"
    )


def _warnings(warnings: Sequence[dict[str, Any]]) -> str:
    if not warnings:
        return ""
    items = "".join(
        f"<li><b>{escape(' on '.join(part for part in (each['sequence'], each['database']) if part))}</b> "
        f"{escape(each['reason'])}</li>"
        for each in warnings
    )
    return f'<section class="warnings"><h2>Warnings</h2><ul>{items}</ul></section>'


def _databases(databases: Sequence[dict[str, Any]], now: float) -> str:
    cards = "".join(_database(each, now) for each in databases)
    return f'<section><h2>Ticket databases</h2><div class="databases">{cards}</div></section>'


def _database(each: dict[str, Any], now: float) -> str:
    status = each["status"]
    began = datetime.datetime.fromisoformat(each["since"])
    error = each["last_error"]
    latency = _NONE if status != "up" or each["latency_ms"] is None else f"{each['latency_ms']:.1f} ms"
    label = "last error" if status == "up" else "reason"
    said = f'<p class="error"><span class="soft">{label}</span> {escape(error)}</p>' if error else ""
    return (
        f'<article class="database {escape(status)}" data-database="{escape(each["name"])}">'
        f'<header><h3>{escape(each["name"])}</h3><span class="pill {escape(status)}">{escape(status)}</span></header>'
        f'<dl><div><dt>since</dt><dd><time datetime="{escape(each["since"])}" title="{escape(each["since"])}">'
        f"{_span(now - began.timestamp())}</time></dd></div>"
        f"<div><dt>write latency</dt><dd>{latency}</dd></div>"
        f"<div><dt>offset</dt><dd>{each['offset']}</dd></div></dl>{said}</article>"
    )


def _sequence(each: dict[str, Any], rate: Rate, now: float) -> str:
    databases = each["databases"]
    known = [on["last"] for on in databases if on["last"] is not None]
    lasts = (
        _NONE
        if not known
        else "".join(
            f'<span title="{escape(on["name"])}">{_NONE if on["last"] is None else _number(on["last"])}</span>'
            for on in databases
        )
    )
    drift = _number(max(known) - min(known)) if len(known) > 1 else _NONE
    left = [on["headroom"] for on in databases if on["headroom"] is not None]
    name = escape(each["sequence"])
    return (
        f'<tr data-sequence="{name}"><th scope="row"><span class="name">{name}</span>'
        f' <span class="soft">{each["bits"]} bits</span></th>'
        f'<td class="n third" data-label="Rate here">{_rate(rate.now)}<span class="soft">/s</span></td>'
        f'<td class="spark">{_sparkline(rate.history)}</td>'
        f'<td class="n" data-label="Last tickets"><span class="lasts">{lasts}</span></td>'
        f'<td class="n third" data-label="Drift">{drift}</td>'
        f'<td data-label="Headroom">{_headroom(each, max(known, default=0), left)}</td>'
        f'<td class="third" data-label="Ends">{_end(each, left, rate, now)}</td></tr>'
    )


def _headroom(each: dict[str, Any], last: int, left: Sequence[int]) -> str:
    if each["exhausted"]:
        return '<span class="pill fail">exhausted</span>'
    if not left:
        return _NONE
    share = max(0.0, 1 - last / each["ceiling"])
    state = "fail" if share < 0.1 else "warn" if share < 0.25 else "pass"
    exact = ", ".join(f"{_number(on['headroom'] or 0)} on {on['name']}" for on in each["databases"])
    return (
        f'<span class="headroom" title="{escape(exact)}"><svg class="bar {state}" viewBox="0 0 100 6" '
        f'preserveAspectRatio="none" aria-hidden="true"><rect class="all" width="100" height="6"/>'
        f'<rect class="left" width="{100 * share:.2f}" height="6"/></svg>'
        f'<span>{_short(sum(left))} <span class="soft">{_percent(share)}</span></span></span>'
    )


def _end(each: dict[str, Any], left: Sequence[int], rate: Rate, now: float) -> str:
    """The day on which the ids would be used up at the present rate, by all servers."""
    if each["exhausted"]:
        return "now"
    if rate.used <= 0 or not left:
        return _NONE
    seconds = sum(left) / rate.used
    if seconds > 1000 * _YEAR:
        return '<span class="soft">in over 1,000 years</span>'
    if seconds > 100 * _YEAR:
        return f'<span class="soft">in {_number(round(seconds / _YEAR))} years</span>'
    day = datetime.datetime.fromtimestamp(now + seconds, datetime.UTC)
    soon = ' class="soon"' if seconds < 30 * 86400 else ""
    when = f'<time{soon} datetime="{day:%Y-%m-%dT%H:%MZ}">{day:%Y-%m-%d}</time>'
    return f'{when} <span class="soft">in {_span(seconds)}</span>'


# --- numbers -------------------------------------------------------------------------------------------------------


def _sparkline(history: Sequence[float], kind: str = "") -> str:
    """A line from the left (long ago) to the right (now); its right end stays where it is while the past fills up."""
    width, height = SAMPLES - 2, 24.0
    top = max(max(history, default=0.0), 1e-9)
    start = width - (len(history) - 1)
    points = [f"{start + i},{height - 1 - (height - 3) * value / top:.1f}" for i, value in enumerate(history)]
    if len(points) < 2:
        points = [f"0,{height - 1:.1f}", f"{width},{height - 1:.1f}"]
    left, right = points[0].partition(",")[0], points[-1].partition(",")[0]
    flat = " flat" if top < 1e-6 else ""
    return (
        f'<svg class="sparkline {kind}{flat}" viewBox="0 0 {width} {height:.0f}" preserveAspectRatio="none" role="img" '
        f'aria-label="rate of the last {_MINUTES} minutes">'
        f'<path class="base" d="M0 {height - 1:.1f}H{width}" vector-effect="non-scaling-stroke"/>'
        f'<polygon points="{left},{height:.0f} {" ".join(points)} {right},{height:.0f}"/>'
        f'<polyline points="{" ".join(points)}" vector-effect="non-scaling-stroke"/></svg>'
    )


def _number(value: int) -> str:
    return f"{value:,}"


def _short(value: float) -> str:
    """4611686018427387904 is a number that nobody reads."""
    for power, unit in ((12, "×10¹²"), (9, " billion"), (6, " million")):
        if value >= 10**power:
            shown = math.floor(value / 10 ** (power - 1)) / 10
            return f"{math.floor(value / 1e17) / 10:.1f}×10¹⁸" if shown >= 1e5 else f"{shown:,.1f}{unit}"
    return f"{round(value):,}"


def _rate(value: float) -> str:
    return f"{value:.1f}" if 0 < value < 10 else f"{value:,.0f}"


def _percent(share: float) -> str:
    if 0.995 <= share < 1:
        return f"{math.floor(share * 10000) / 100:.2f} %" if share < 0.9999 else "> 99.99 %"
    return f"{math.floor(share * 1000) / 10:.1f} %" if share < 1 else "100 %"


def _clock(now: float) -> str:
    return f"{datetime.datetime.fromtimestamp(now, datetime.UTC):%Y-%m-%d %H:%M:%S}"


def _span(seconds: float) -> str:
    """A stretch of time in the one or two units that matter."""
    left = max(0, round(seconds))
    parts: list[str] = []
    for unit, size in (("y", round(_YEAR)), ("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        if left >= size or (unit == "s" and not parts):
            parts.append(f"{left // size} {unit}")
            left %= size
        elif parts:
            break
    return " ".join(parts[:2])
