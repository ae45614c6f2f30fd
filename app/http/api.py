"""The HTTP API as a FastAPI application: everything but the requests for tickets that `fast` answers by itself."""

import asyncio
import logging
from typing import Annotated, Any

from fastapi import Body, Depends, FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import Match

from app.access import Access
from app.connections import Tally
from app.errors import Draining, InvalidRequest, NoTicketDatabase, TicketError
from app.http import decoding, models, problems
from app.http.access import LARGEST_BODY, Gate, endpoint_of
from app.http.cycle import answer_body, prefers_text
from app.http.models import answered
from app.http.pages.status import add_pages
from app.kinds.table import decoded
from app.operations.metrics import Metrics
from app.operations.report import Report
from app.operations.watch import Watch
from app.service import Service
from app.tickets.request import Call, Shape, largest_block
from app.version import VERSION

log = logging.getLogger(__name__)

EXPOSITION = {"content-type": "text/plain; version=0.0.4; charset=utf-8"}
READY = """\
# HELP tickets_ready 1 while this server can issue tickets and is not draining.
# TYPE tickets_ready gauge
tickets_ready 1.0
"""
"""The answer of /readyz to Prometheus, which scrapes it without a token."""

Name = Annotated[str, Path(description="the sequence's name, in any case", examples=["photos"])]
NoQuery = Annotated[models.NoQuery, Query()]


def make_api(
    service: Service, report: Report, access: Access, tally: Tally, watch: Watch | None, *, is_local: bool
) -> FastAPI:
    """Return the application. is_local: whether the server listens on a loopback address only."""
    api = FastAPIOffline(
        title="Ticket server",
        version=VERSION,
        description="Hands out ids that never come twice.",
        docs_url=None,
        redoc_url=None,
        responses=models.PROBLEM,
        servers=[{"url": "."}],  # a proxy may serve this below a prefix
        redirect_slashes=False,
        dependencies=[Depends(_each_once)],
    )
    _add_drawing(api, service)
    _add_reading(api, service, report)
    _add_changes(api, service, report)
    _add_operation(api, report, Metrics(report, tally))
    add_pages(api, service, report)
    _add_error_handlers(api)
    models.complete_document(api, access)
    api.add_middleware(Gate, access=access, tally=tally, watch=watch, is_local=is_local)
    return api


def _add_drawing(api: FastAPI, service: Service) -> None:
    tickets = answered("Ticket", "Tickets")
    lines = {"schema": {"type": "string", "pattern": "^([0-9A-Za-z-]+\n)+$"}, "example": "7\n"}
    tickets[200]["content"]["text/plain"] = lines

    async def take_a_ticket(request: Request, sequence: Name, asked: Annotated[models.TicketQuery, Query()]) -> Any:
        """Return a ticket, or a list of `count` tickets; as text, one id a line.

        No ticket is ever handed out twice; there may be gaps. A body other than `{}` is refused.
        """
        await _refuse_body(request, models.TicketQuery)
        shape = Shape.SINGLE if asked.count is None else Shape.LIST
        wanted = {"count": asked.count or 1, "shape": shape, "key": asked.key, "shard": asked.shard}
        return await _draw(service, sequence, is_text=_wants_text(request), **wanted)

    async def take_a_block(request: Request, sequence: Name, asked: Annotated[models.BlockQuery, Query()]) -> Any:
        """Return a block of tickets, whole or not at all. Only sequences of kind `ticket` have blocks.

        No ticket is ever handed out twice; there may be gaps. A body other than `{}` is refused.
        """
        await _refuse_body(request, models.BlockQuery)
        largest = largest_block(service.desk.increment)
        if asked.size > largest:
            raise InvalidRequest(f"size is at most {largest}, because of the ring's increment")
        return await _draw(service, sequence, is_text=False, count=asked.size, shape=Shape.BLOCK)

    for method in (api.get, api.post):
        method("/ticket/{sequence}", responses=tickets, tags=["tickets"])(take_a_ticket)
        method("/block/{sequence}", responses=answered("Block"), tags=["tickets"])(take_a_block)


async def _draw(service: Service, sequence: str, *, is_text: bool, **wanted: Any) -> Response:
    """Return the answer with ids. wanted: see `Call`. Raises TicketError."""
    outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def settle(value: Any) -> None:
        if not outcome.done():
            outcome.set_result(value)

    call = Call(sequence, settle, settle, **wanted)
    service.desk.take(call)
    try:
        drawn = await outcome
    finally:
        call.abandon()
    if isinstance(drawn, TicketError):
        raise drawn
    entry = service.catalog.entries.get(call.sequence)
    body = answer_body(sequence if entry is None else entry.name, call.shape, drawn, is_text)
    return Response(body, media_type="text/plain" if is_text else "application/json")


def _wants_text(request: Request) -> bool:
    return prefers_text(request.headers.get("accept", ""))


async def _refuse_body(request: Request, known: type[models.NoQuery]) -> None:
    """Raise InvalidRequest where the body asks for anything."""
    body = await request.body()
    if body and b"".join(body.split()) not in (b"", b"{}"):
        raise InvalidRequest(f"the body has to be empty or {{}}, for parameters stand in the query: {known.listed()}")


def _add_reading(api: FastAPI, service: Service, report: Report) -> None:
    @api.get("/sequence", responses=answered("Sequences"), tags=["sequences"])
    async def list_the_sequences(asked: Annotated[models.ListQuery, Query()]) -> Response:
        """Return the sequences by name. If more follow, `next` is the value of `after` for the next page."""
        page, total = await report.page(asked.search, asked.after or "", asked.limit)
        following = page[-1]["sequence"] if len(page) == asked.limit else None
        return JSONResponse({"sequences": page, "next": following, "total": total})

    @api.get("/sequence/{sequence}", responses=answered("Sequence"), tags=["sequences"])
    async def show_a_sequence(sequence: Name, _: NoQuery) -> Response:
        """Return what a sequence is, and its position on each ticket database."""
        return JSONResponse(await report.sequence(sequence))

    @api.get("/decode/{sequence}/{id}", responses=answered("Decoded"), tags=["sequences"])
    async def read_an_id(sequence: Name, id: Annotated[str, Path(examples=["7"])], _: NoQuery) -> Response:
        """Return what an id of this sequence says. An id from more than 60 s in the future is refused."""
        return JSONResponse(await decoding.of_sequence(service, sequence, id))

    @api.get("/decode", responses=answered("Decoded"), tags=["sequences"])
    async def read_an_id_of_elsewhere(asked: Annotated[models.DecodeQuery, Query()]) -> Response:
        """Return what an id says that was made elsewhere, in a kind that is known here."""
        return JSONResponse(decoded(asked.kind, asked.parameters, asked.id))


def _add_changes(api: FastAPI, service: Service, report: Report) -> None:
    there = answered("Sequence", about="The sequence is there already.")
    new = answered("Sequence", status=201, about="The sequence was made.")

    @api.put("/sequence/{sequence}", tags=["sequences"], responses=there | new)
    async def make_a_sequence(
        request: Request, sequence: Name, _: NoQuery, wanted: Annotated[models.NewSequence | None, Body()] = None
    ) -> Response:
        """Make a sequence on the ticket databases that are up, and on the others when they come.

        What is left out is not compared with a sequence that is there, nor is `start`. Kind and parameters never
        change.
        """
        wanted = wanted or models.NewSequence()
        entry, made = await service.catalog.create(sequence, wanted.kind, wanted.parameters)
        if made:
            log.info("%s made the sequence %s: %s", _client(request), entry.name, entry.definition)
        return JSONResponse(await report.sequence(entry.name), 201 if made else 200)

    @api.post("/sequence/{sequence}/bump", tags=["sequences"], responses=answered("Bumped"))
    async def bump_a_sequence(request: Request, sequence: Name, _: NoQuery, wanted: models.Bump) -> Response:
        """Let every ticket after the answer be larger than `above`, whichever server or database gives it.

        A number below the present position changes nothing. Only sequences of kind `ticket` can be advanced.
        """
        above, deadline = wanted.above, service.sight.clock() + service.settings.request_timeout
        entry = await service.catalog.bump(sequence, above, force=wanted.force, deadline=deadline)
        log.info("%s advanced the sequence %s above %d", _client(request), entry.name, above)
        databases = (await report.sequence(entry.name))["databases"]
        return JSONResponse({"sequence": entry.name, "above": above, "above_str": str(above), "databases": databases})


def _client(request: Request) -> str:
    return request.client.host if request.client else "a client"


def _add_operation(api: FastAPI, report: Report, metrics: Metrics) -> None:
    tags: Any = {"tags": ["operation"]}

    @api.get("/livez", response_model=dict[str, str], **tags)
    async def ask_whether_the_process_runs() -> Response:
        return JSONResponse({"status": "alive"})

    text: models.Responses = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}

    @api.get("/readyz", response_model=dict[str, str], responses=text, **tags)
    async def ask_whether_tickets_can_be_had(request: Request) -> Response:
        """Whether this server can hand out tickets; as text, one metric for a scrape without a token."""
        if not report.is_ready():
            raise Draining if report.is_draining else NoTicketDatabase
        if _wants_text(request):
            return Response(READY, headers=EXPOSITION)
        return JSONResponse({"status": "ready"})

    @api.get("/metrics", response_class=Response, responses=text, **tags)
    async def show_the_metrics() -> Response:
        """Return the metrics in Prometheus' text format."""
        return Response(await metrics.text(), headers=EXPOSITION)

    failing = answered("Health", status=503, about="This server cannot hand out tickets.")

    @api.get("/healthz", responses=answered("Health") | failing, **tags)
    async def show_the_health() -> Response:
        """Return what this server knows of its ticket databases, and its warnings."""
        if report.is_ready():
            return JSONResponse(report.health())
        return JSONResponse(report.health(), 503, {"retry-after": str(problems.RETRY_AFTER)})

    page = get_swagger_ui_html(  # readable without the internet and below any prefix: its links are relative
        title=api.title,
        openapi_url="openapi.json",
        swagger_js_url="static-offline-docs/swagger-ui-bundle.js",
        swagger_css_url="static-offline-docs/swagger-ui.css",
        swagger_favicon_url="static-offline-docs/favicon.png",
        swagger_ui_parameters={"validatorUrl": None},  # otherwise the page may ask a validator on the internet
    )

    @api.get("/docs", include_in_schema=False)
    async def show_docs() -> Response:
        return page


async def _each_once(request: Request) -> None:
    """Raise InvalidRequest if a query string has a parameter twice, since only one of the values could count."""
    names = [name for name, _ in request.query_params.multi_items()]
    if len(set(names)) < len(names):
        raise InvalidRequest("each query parameter may be given once")


def _add_error_handlers(api: FastAPI) -> None:
    async def answer(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            return problems.respond(request.scope, _http_problem(api, request, error.status_code))
        if isinstance(error, RequestValidationError):
            error = InvalidRequest(_what_is_wanted(error))
        return problems.respond(request.scope, problems.problem_of(error))

    for kind in (TicketError, RequestValidationError, HTTPException, Exception):
        api.add_exception_handler(kind, answer)


def _what_is_wanted(error: RequestValidationError) -> str:
    first = error.errors()[0]
    if len(first["loc"]) == 1 or first["type"] == "json_invalid":
        return "the body has to be a JSON object, with Content-Type: application/json"
    return f"{first['loc'][1]}: {first['msg']}"


def _http_problem(api: FastAPI, request: Request, status: int) -> problems.Problem:
    """Return the problem for an error that FastAPI found by itself."""
    if status == 404:
        return problems.problem(404, problems.NOT_FOUND, "there is no such page")
    if status == 405:
        methods = ", ".join(_methods(api, request))
        detail = f"this method is not allowed here; allowed: {methods}"
        return problems.problem(405, problems.METHOD_NOT_ALLOWED, detail, {"allow": methods})
    if status == 413:
        return problems.problem(413, problems.BAD_REQUEST, f"the body is larger than {LARGEST_BODY:,} bytes")
    return problems.problem_of(InvalidRequest("the body cannot be read: JSON is wanted"))


def _methods(api: FastAPI, request: Request) -> list[str]:
    """Return the methods of all routes of this path."""
    matching = [route for route in api.routes if route.matches(request.scope)[0] is not Match.NONE]
    methods = {method for route in matching for method in getattr(route, "methods", None) or ()}
    if "GET" in methods and endpoint_of(request.url.path) is None:
        methods.add("HEAD")
    return sorted(methods)
