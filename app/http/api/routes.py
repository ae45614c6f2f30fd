"""The HTTP API except tickets and blocks: ordinary FastAPI behind a gate."""

import json
import logging
from functools import lru_cache
from typing import Annotated, Any

from fastapi import Body, FastAPI, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import Match
from starlette.types import ASGIApp

from app.clients.denials import Denials
from app.clients.turns import Turns
from app.common.errors import TicketError
from app.common.sequences import validated
from app.common.version import VERSION
from app.http.access import Access
from app.http.api import description as described
from app.http.api import sequence_list
from app.http.api.decode_routes import add_decode_routes
from app.http.api.description import problems
from app.http.api.models import Bump, Bumped, Health, NewSequence, Sequence, Sequences
from app.http.api.sequence_list import LARGEST_PAGE, SEARCH_PATTERN
from app.http.gate import SEQUENCE_PAGE, Gate
from app.http.pages.address import address_of
from app.http.pages.docs_page import render as render_docs
from app.http.pages.page import Page
from app.http.pages.sequence_page import SequencePage
from app.http.pages.status_page import StatusPage
from app.http.pages.status_query import LARGEST_PAGE as LARGEST_STATUS_PAGE
from app.http.pages.status_query import SORTS, query_of
from app.http.problems import Code, Problem, body_too_large, method_not_allowed, problem_of
from app.http.query import Parameters
from app.http.tickets.endpoint import ACCEPT_BYTES, prefers_text
from app.http.tickets.head import LARGEST_BODY
from app.operations.admin import Admin
from app.operations.metrics import GAUGES
from app.tickets.desk.front_desk import FrontDesk
from app.tickets.requests.request import LARGEST_COUNT

log = logging.getLogger(__name__)

EXPOSITION_TYPE = "text/plain; version=0.0.4; charset=utf-8"
READY_EXPOSITION = f"# HELP tickets_ready {GAUGES['tickets_ready']}\n# TYPE tickets_ready gauge\ntickets_ready 1.0\n"
"""What /readyz says to Prometheus, which scrapes it without a token."""
FRESH = {"cache-control": "no-store"}

Name = Annotated[str, Path(description="the sequence's name")]


def make_api(
    admin: Admin,
    access: Access,
    denials: Denials,
    status_page: StatusPage,
    desk: FrontDesk,
    *,
    sequence_page: SequencePage,
    turns: Turns,
    listens_locally: bool,
) -> ASGIApp:
    """The FastAPI application over this server, behind its gate. `listens_locally`: on a loopback address."""
    api = FastAPI(
        title="Ticket server", version=VERSION, docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False
    )
    _add_operation(api, admin)
    _add_sequences(api, admin, turns)
    add_decode_routes(api, admin.decoding)
    _add_pages(api, access, desk, status_page)
    _add_sequence_page(api, access, sequence_page)
    _add_error_handlers(api)
    return Gate(api, access, denials, turns, listens_locally=listens_locally)


def _add_sequences(api: FastAPI, admin: Admin, turns: Turns) -> None:
    tags: Any = {"tags": ["sequences"], "response_model": None}
    one = described.answers(Sequence, "The sequence.", described.SEQUENCE_EXAMPLE)

    @api.head("/sequence", include_in_schema=False)
    @api.get(
        "/sequence",
        summary="List the sequences",
        description="Sorted by name, in pages. If more follow, `next` is the value of `after` for the next page, and "
        "the `Link` header holds its address. `total` counts all sequences that match.",
        responses={
            200: described.answers(
                Sequences,
                "The sequences, sorted by name.",
                {"sequences": [described.SEQUENCE_EXAMPLE], "next": "photos", "total": 2},
                headers=described.LINK,
            ),
            **problems(401, 422),
        },
        openapi_extra={"parameters": described.list_parameters(LARGEST_PAGE, SEARCH_PATTERN)},
        **tags,
    )
    async def list_sequences(request: Request) -> Response:
        return await sequence_list.answer(admin, turns, request.scope["query_string"])

    @api.head("/sequence/{sequence}", include_in_schema=False)
    @api.get(
        "/sequence/{sequence}",
        summary="Show a sequence",
        responses={200: one, **problems(401, 404, 422, 503)},
        **tags,
    )
    async def show_sequence(sequence: Name) -> dict[str, Any]:
        return await admin.sequence(validated(sequence))

    @api.put(
        "/sequence/{sequence}",
        summary="Create a sequence",
        description="Creates it on the ticket databases that are up, and on the others when they come up. A sequence "
        "that exists with these parameters is left unchanged; what is left out is not compared, nor is `start`. Of a "
        "kind's parameters only its own may be given. Kind and parameters never change afterwards.",
        responses={
            200: {**one, "description": "It exists already."},
            201: {**one, "description": "It has been created."},
            **problems(401, 403, 409, 413, 422, 503),
        },
        **tags,
    )
    async def make_sequence(
        request: Request, sequence: Name, requested: Annotated[NewSequence | None, Body()] = None
    ) -> Response:
        validated(sequence)
        _refuse_parameters(request)
        requested = requested or NewSequence()
        given = requested.parameters
        _audited(request, kind=requested.kind, **given)
        made, found = await admin.make(sequence, requested.kind, given)
        return JSONResponse(found, 201 if made else 200)

    @api.post(
        "/sequence/{sequence}/bump",
        summary="Advance a sequence of kind ticket",
        description="Every ticket drawn after the answer is larger than `above`, on every ticket database. A number "
        "below the present position changes nothing.",
        responses={
            200: described.answers(Bumped, "The sequence is above the number.", described.BUMPED_EXAMPLE),
            **problems(401, 403, 404, 409, 413, 422, 503),
        },
        **tags,
    )
    async def bump_sequence(request: Request, sequence: Name, requested: Bump) -> dict[str, Any]:
        validated(sequence)
        _refuse_parameters(request)
        _audited(request, above=requested.above, force=requested.force)
        return await admin.bump(sequence, requested.above, force=requested.force)


def _add_operation(api: FastAPI, admin: Admin) -> None:
    tags: Any = {"tags": ["operation"], "response_model": None}
    alive = {"description": "The process is running.", "content": {described.JSON: {"example": {"status": "alive"}}}}
    ready_ = {
        "description": "The server can issue tickets.",
        "content": {
            described.JSON: {"example": {"status": "ready"}},
            "text/plain": {"schema": {"type": "string"}, "example": READY_EXPOSITION},
        },
    }

    @api.head("/livez", include_in_schema=False)
    @api.get("/livez", summary="Liveness: is the process running?", responses={200: alive}, **tags)
    async def livez() -> Response:
        return JSONResponse({"status": "alive"}, headers=FRESH)

    @api.head("/readyz", include_in_schema=False)
    @api.get(
        "/readyz",
        summary="Readiness: can the server issue tickets?",
        description="200 while at least one ticket database can draw and the server is not draining. Who prefers "
        "text/plain gets one metric in Prometheus' text format: a scrape without a token, which tells a server that "
        "refuses the token of the other scrape from a dead one.",
        responses={200: ready_, **problems(503)},
        **tags,
    )
    async def readyz(request: Request) -> Response:
        if admin.ready:
            if prefers_text(request.headers.get("accept", "").encode("latin-1")[:ACCEPT_BYTES]):
                return Response(READY_EXPOSITION, headers=FRESH | {"content-type": EXPOSITION_TYPE})
            return JSONResponse({"status": "ready"}, headers=FRESH)
        return _answer(problem_of(admin.why_not_ready))

    health = described.answers(Health, "The server can issue tickets.", described.HEALTH_EXAMPLE)

    @api.head("/healthz", include_in_schema=False)
    @api.get(
        "/healthz",
        summary="Health: the ticket databases and warnings",
        description="`warn` while a ticket database is not up or there is a warning; `fail` while `/readyz` is 503.",
        responses={200: health, 503: {**health, "description": "The server cannot issue tickets."}},
        **tags,
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
        **tags,
        response_class=Response,
    )
    async def metrics() -> Response:
        return Response(await admin.metrics_text(), headers={"content-type": EXPOSITION_TYPE})


def _add_pages(api: FastAPI, access: Access, desk: FrontDesk, status_page: StatusPage) -> None:
    tags: Any = {"tags": ["operation"], "response_model": None}
    page = described.text_answer("An HTML page.", "text/html")

    @api.head("/", include_in_schema=False)
    @api.get(
        "/",
        summary="The status page",
        responses={200: page, **problems(401, 422)},
        openapi_extra={"parameters": described.page_parameters(LARGEST_STATUS_PAGE, list(SORTS))},
        **tags,
        response_class=HTMLResponse,
    )
    async def status(request: Request) -> Response:
        return _page(await status_page.render(query_of(request.scope["query_string"])))

    @api.head("/docs", include_in_schema=False)
    @api.get("/docs", summary="This description, as a page", responses={200: page, **problems(401)}, **tags,
             response_class=HTMLResponse)  # fmt: skip
    async def docs(request: Request) -> Response:
        return _page(render_docs(document(desk.largest_block), str(request.base_url).rstrip("/")))

    @api.head("/openapi.json", include_in_schema=False)
    @api.get(
        "/openapi.json",
        summary="This description, as an OpenAPI document",
        responses={
            200: {"description": "An OpenAPI document.", "content": {described.JSON: {"schema": {"type": "object"}}}},
            **problems(401),
        },
        **tags,
    )
    async def openapi() -> Response:
        return Response(as_text(desk.largest_block), media_type=described.JSON)

    @lru_cache(maxsize=2)  # writing it takes some milliseconds, in which nobody else is served
    def as_text(largest_block: int) -> bytes:
        return json.dumps(document(largest_block), separators=(",", ":"), ensure_ascii=False).encode()

    @lru_cache(maxsize=2)  # the largest block follows from the increment that the databases record
    def document(largest_block: int) -> dict[str, Any]:
        return described.describe(
            api,
            largest_count=LARGEST_COUNT,
            largest_block=largest_block,
            reading_is_free=access.tickets_are_free,
            changes_are_free=access.changes_are_free,
        )

    document(desk.largest_block)


def _add_sequence_page(api: FastAPI, access: Access, sequence_page: SequencePage) -> None:
    path = SEQUENCE_PAGE + "{sequence}"

    @api.head(path, include_in_schema=False)
    @api.get(
        path,
        summary="The page of a sequence",
        description="For people: the kind, the position on each ticket database, the rate, and examples to copy. "
        "Programs read `/sequence/{sequence}`.",
        responses={200: described.text_answer("An HTML page.", "text/html"), **problems(401, 404, 422, 503)},
        tags=["operation"],
        response_model=None,
        response_class=HTMLResponse,
    )
    async def show(request: Request, sequence: Name) -> Response:
        address, needs_token = address_of(request), not access.tickets_are_free
        return _page(await sequence_page.render(validated(sequence), address, needs_token=needs_token))


def _page(page: Page) -> Response:
    return HTMLResponse(page.html, headers=page.headers)


def _refuse_parameters(request: Request) -> None:
    """Raise InvalidRequest for a query parameter: what changes a sequence stands in the body, and `?bits=32` without
    effect would make a sequence that is wrong for ever."""
    Parameters(request.scope["query_string"]).refuse_others(())


def _audited(request: Request, **about: object) -> None:
    request.scope["audit"].update({key: value for key, value in about.items() if value is not None})


# --- errors --------------------------------------------------------------------------------------------------------


UNEXPECTED = Problem(Code.INTERNAL, "an unexpected error; the server's log has the details")


def _answer(problem: Problem) -> Response:
    return Response(problem.body, problem.status, problem.all_headers)


def _add_error_handlers(api: FastAPI) -> None:
    """Answer every error with problem details."""

    async def ours(_: Request, error: Exception) -> Response:
        assert isinstance(error, TicketError)
        return _answer(problem_of(error))

    async def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body") or "the body"
        if first["type"] == "model_attributes_type":
            return _answer(
                Problem(Code.INVALID, "the body has to be a JSON object, with Content-Type: application/json")
            )
        return _answer(Problem(Code.INVALID, f"{where}: {first['msg']}"))

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, StarletteHTTPException)
        match error.status_code:
            case 404:
                return _answer(Problem(Code.NOT_FOUND, "there is no such page"))
            case 405:
                return _answer(method_not_allowed(*_allowed(api, request)))
            case 400:
                return _answer(Problem(Code.INVALID, "the body cannot be read: JSON is required"))
            case 413:
                return _answer(body_too_large(LARGEST_BODY))
            case _:
                return _answer(UNEXPECTED)

    async def unknown(_: Request, __: Exception) -> Response:
        return _answer(UNEXPECTED)

    api.add_exception_handler(TicketError, ours)
    api.add_exception_handler(RequestValidationError, invalid)
    api.add_exception_handler(StarletteHTTPException, http)
    api.add_exception_handler(Exception, unknown)


def _allowed(api: FastAPI, request: Request) -> list[str]:
    """The methods allowed on this path, by all routes that match it."""
    methods: set[str] = set()
    for route in api.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            methods |= set(getattr(route, "methods", None) or ())
    return sorted(methods)
