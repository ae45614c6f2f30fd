"""The HTTP API but for tickets and blocks: ordinary FastAPI."""

from typing import Annotated, Any

from fastapi import Body, FastAPI, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from app.access import Access, short_name
from app.errors import InvalidRequest, TicketError
from app.overseer import Overseer
from app.problems import Problem, problem_of
from app.sequences import TICKET_LIMIT, Width, validated
from app.version import VERSION


def _whole_number(value: Any) -> Any:
    """An id may come as a string too, for clients that lose integers above 2^53."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 20:
        return int(value)
    return value


WholeNumber = Annotated[int, BeforeValidator(_whole_number)]


class NewSequence(BaseModel):
    """What a new sequence is to be."""

    model_config = ConfigDict(extra="forbid", strict=True)
    bits: Annotated[int | None, Field(description="32 or 64")] = None
    start: Annotated[WholeNumber | None, Field(ge=1, description="the first ticket is at least this")] = None


class Bump(BaseModel):
    """How far a sequence is to be moved up."""

    model_config = ConfigDict(extra="forbid", strict=True)
    above: Annotated[WholeNumber, Field(ge=0, description="every later ticket is larger than this")]
    force: bool = False


Name = Annotated[str, Path(description="the sequence's name: a letter, then letters, digits and _; at most 64")]


def make_api(overseer: Overseer, access: Access) -> FastAPI:
    """The FastAPI application over this server's overseer."""
    api = FastAPI(title="Ticket server", version=VERSION, docs_url=None, redoc_url=None, openapi_url=None)

    def guard(request: Request, *, changes: bool = False) -> None:
        given = request.headers.get("authorization")
        header = given.encode("latin-1") if given is not None else None
        refusal = access.refusal_for_changes(header) if changes else access.refusal_for_tickets(header)
        if refusal is not None:
            raise Refused(refusal)

    @api.api_route("/livez", methods=["GET", "HEAD"])
    async def livez() -> dict[str, str]:
        return {"status": "alive"}

    @api.api_route("/readyz", methods=["GET", "HEAD"])
    async def readyz() -> Response:
        if overseer.ready:
            return JSONResponse({"status": "ready"}, headers={"cache-control": "no-store"})
        return answer(Problem(503, overseer.why_not_ready))

    @api.api_route("/healthz", methods=["GET", "HEAD"])
    async def healthz() -> Response:
        report = overseer.health()
        headers = {"cache-control": "no-store"} | ({} if overseer.ready else {"retry-after": "1"})
        return JSONResponse(report, 200 if overseer.ready else 503, headers)

    @api.api_route("/metrics", methods=["GET", "HEAD"])
    async def metrics(request: Request) -> Response:
        guard(request)
        return Response(overseer.metrics_text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @api.api_route("/sequence", methods=["GET", "HEAD"])
    async def sequences(request: Request) -> dict[str, Any]:
        guard(request)
        return {"sequences": await overseer.sequences()}

    @api.api_route("/sequence/{sequence}", methods=["GET", "HEAD"])
    async def sequence(request: Request, sequence: Name) -> dict[str, Any]:
        guard(request)
        return await overseer.sequence(validated(sequence))

    @api.put("/sequence/{sequence}")
    async def make_sequence(
        request: Request, sequence: Name, wanted: Annotated[NewSequence | None, Body()] = None
    ) -> Response:
        guard(request, changes=True)
        validated(sequence)
        wanted = wanted or NewSequence()
        if wanted.bits is not None and wanted.bits not in (32, 64):
            raise InvalidRequest("bits has to be 32 or 64")
        width = Width(wanted.bits) if wanted.bits is not None else None
        made, found = await overseer.make(sequence, width, wanted.start, by=_who(request))
        return JSONResponse(found, 201 if made else 200)

    @api.post("/sequence/{sequence}/bump")
    async def bump(request: Request, sequence: Name, wanted: Bump) -> dict[str, Any]:
        guard(request, changes=True)
        validated(sequence)
        if wanted.above > 2 * TICKET_LIMIT:
            raise InvalidRequest("above has to be a 64-bit number")
        return await overseer.bump(sequence, wanted.above, force=wanted.force, by=_who(request))

    add_error_handlers(api)
    return api


def _who(request: Request) -> str:
    given = request.headers.get("authorization")
    return short_name(given.encode("latin-1") if given is not None else None)


class Refused(Exception):
    """The request may not do this."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


def answer(problem: Problem) -> Response:
    """A problem as a response."""
    return Response(problem.body, problem.status, problem.all_headers)


def add_error_handlers(api: FastAPI) -> None:
    """Make every error a problem."""

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, Refused)
        return answer(error.problem)

    async def ours(_: Request, error: Exception) -> Response:
        assert isinstance(error, TicketError)
        return answer(problem_of(error))

    async def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body") or "the body"
        return answer(Problem(422, f"{where}: {first['msg']}"))

    async def http(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        headers = tuple((error.headers or {}).items())
        detail = "there is no such page" if error.status_code == 404 else str(error.detail)
        return answer(Problem(error.status_code, detail, headers))

    api.add_exception_handler(Refused, refused)
    api.add_exception_handler(TicketError, ours)
    api.add_exception_handler(RequestValidationError, invalid)
    api.add_exception_handler(HTTPException, http)
