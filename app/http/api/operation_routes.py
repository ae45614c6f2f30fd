"""/livez, /readyz, /healthz and /metrics: for orchestrators, load balancers and monitoring."""

from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.responses import JSONResponse

from app.http.api import description as described
from app.http.api.description import problems
from app.http.api.errors import answer_with
from app.http.api.models import Health
from app.http.problems import problem_of
from app.http.tickets.endpoint import ACCEPT_BYTES, prefers_text
from app.operations.admin import Admin
from app.operations.metrics import GAUGES

EXPOSITION_TYPE = "text/plain; version=0.0.4; charset=utf-8"
READY_EXPOSITION = f"# HELP tickets_ready {GAUGES['tickets_ready']}\n# TYPE tickets_ready gauge\ntickets_ready 1.0\n"
"""The answer of /readyz to Prometheus, which scrapes it without a token."""
FRESH = {"cache-control": "no-store"}

ALIVE = {"description": "The process is running.", "content": {described.JSON: {"example": {"status": "alive"}}}}
READY = {
    "description": "The server can issue tickets.",
    "content": {
        described.JSON: {"example": {"status": "ready"}},
        "text/plain": {"schema": {"type": "string"}, "example": READY_EXPOSITION},
    },
}
HEALTH = described.answers(Health, "The server can issue tickets.", described.HEALTH_EXAMPLE)
TAGS: Any = {"tags": ["operation"], "response_model": None}


def add_operation_routes(api: FastAPI, admin: Admin) -> None:
    """Add the probes of orchestrators and load balancers, then the reports for monitoring."""
    _add_probes(api, admin)
    _add_reports(api, admin)


def _add_probes(api: FastAPI, admin: Admin) -> None:
    @api.head("/livez", include_in_schema=False)
    @api.get("/livez", summary="Liveness: is the process running?", responses={200: ALIVE}, **TAGS)
    async def livez() -> Response:
        return JSONResponse({"status": "alive"}, headers=FRESH)

    @api.head("/readyz", include_in_schema=False)
    @api.get(
        "/readyz",
        summary="Readiness: can the server issue tickets?",
        description="200 while at least one ticket database can draw and the server is not draining. Who prefers "
        "text/plain gets one metric in Prometheus' text format: a scrape without a token, which tells a server that "
        "refuses the token of the other scrape from a dead one.",
        responses={200: READY, **problems(503)},
        **TAGS,
    )
    async def readyz(request: Request) -> Response:
        if admin.ready:
            if prefers_text(request.headers.get("accept", "").encode("latin-1")[:ACCEPT_BYTES]):
                return Response(READY_EXPOSITION, headers=FRESH | {"content-type": EXPOSITION_TYPE})
            return JSONResponse({"status": "ready"}, headers=FRESH)
        return answer_with(problem_of(admin.why_not_ready))


def _add_reports(api: FastAPI, admin: Admin) -> None:
    @api.head("/healthz", include_in_schema=False)
    @api.get(
        "/healthz",
        summary="Health: the ticket databases and warnings",
        description="`warn` while a ticket database is not up or there is a warning; `fail` while `/readyz` is 503.",
        responses={200: HEALTH, 503: {**HEALTH, "description": "The server cannot issue tickets."}},
        **TAGS,
    )
    async def healthz() -> Response:
        await admin.refresh_warnings()
        if admin.ready:
            return JSONResponse(admin.health(), headers=FRESH)
        return JSONResponse(admin.health(), 503, FRESH | {"retry-after": "1"})

    @api.head("/metrics", include_in_schema=False)
    @api.get(
        "/metrics",
        summary="Prometheus metrics",
        responses={200: described.text_answer("Prometheus' text format."), **problems(401)},
        **TAGS,
        response_class=Response,
    )
    async def metrics() -> Response:
        return Response(await admin.metrics_text(), headers={"content-type": EXPOSITION_TYPE})
