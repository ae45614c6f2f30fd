"""The status page: health, warnings, servers, databases, sequences, and what an id says.

The server renders all of it, so it reads without JavaScript; a small script renews its parts. Links are relative to the
page, which may stand behind a proxy under any path.
"""

from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fastapi import FastAPI, Request
from starlette.responses import HTMLResponse
from starlette.staticfiles import StaticFiles

from app.errors import TicketError
from app.http import decoding
from app.http.pages.runbooks import runbook_of
from app.http.problems import problem_of
from app.operations.report import Report
from app.service import Service

SHOWN = 50  # how many sequences the page shows at once
PARAMETERS = "search", "after", "decode_sequence", "decode_id"
LONGEST = 64  # characters of a parameter that count
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_HERE = Path(__file__).parent


@cache
def _template() -> Any:
    """Return the template. Jinja takes 3 MiB of memory, which a server that nobody looks at does without."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(_HERE / "templates")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True).get_template(
        "status.html"
    )


def add_pages(api: FastAPI, service: Service, report: Report) -> None:
    """Add `GET /` and its style sheet and script to the application.

    The page needs the right to read, which the application checks. `search` and `after` choose the sequences;
    `decode_sequence` and `decode_id` ask what an id says; any other parameter is ignored.
    """
    api.mount("/static", StaticFiles(directory=_HERE / "static"), name="static")

    @api.get("/", include_in_schema=False)
    async def show_the_status(request: Request) -> HTMLResponse:
        asked = {key: request.query_params.get(key, "").strip()[:LONGEST] for key in PARAMETERS}
        sequences = await _sequences(report, asked["search"], asked["after"])
        decoded = await _decoded(service, asked["decode_sequence"], asked["decode_id"])
        state = {**_state(service, report), **sequences, **asked, "decoded": decoded, "runbook_of": runbook_of}
        return HTMLResponse(_template().render(state), headers=HEADERS)


def _state(service: Service, report: Report) -> dict[str, Any]:
    """Return what /healthz says, and the ticket servers, this one first."""
    health = report.health()
    reached = [each["name"] for each in health["databases"] if each["status"] == "up"]
    this = {"name": service.name, "databases": reached}
    away = len(health["databases"]) - len(reached)
    headlines = {
        "pass": "All well",
        "warn": f"{away} of {len(health['databases'])} databases not up" if away else "Warnings",
        "fail": "Draining" if report.is_draining else "Not serving",
    }
    return {
        "health": health,
        "headline": headlines[health["status"]],
        "servers": [this, *(each for each in report.servers() if each["name"] != this["name"])],
        "clock": datetime.now(UTC).strftime("%H:%M:%S"),
    }


async def _sequences(report: Report, search: str, after: str) -> dict[str, Any]:
    """Return the sequences of this page, and the address of the next page, relative to this one."""
    try:
        found, total = await report.page(search, after, SHOWN + 1)
    except TicketError as error:
        return {"rows": [], "total": 0, "next_page": None, "trouble": problem_of(error).detail}
    shown = found[:SHOWN]
    parameters = {"search": search, "after": shown[-1]["sequence"]} if len(found) > SHOWN else {}
    next_page = f"./?{urlencode({key: value for key, value in parameters.items() if value})}" if parameters else None
    return {"rows": shown, "total": total, "next_page": next_page, "trouble": ""}


async def _decoded(service: Service, name: str, id_text: str) -> dict[str, Any]:
    """Return what an id says, or what is wrong with it as `error`; nothing where neither is given."""
    if not name and not id_text:
        return {}
    if not name or not id_text:
        return {"error": "Give both the sequence and the id."}
    try:
        return await decoding.of_sequence(service, name, id_text)
    except TicketError as error:
        return {"error": problem_of(error).detail}
