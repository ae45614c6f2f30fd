"""The error handlers of the HTTP API, which answer with problem details."""

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.routing import Match

from app.common.errors import TicketError
from app.http.problems import Code, Problem, body_too_large, method_not_allowed, problem_of
from app.http.tickets.head import LARGEST_BODY

UNEXPECTED = Problem(Code.INTERNAL, "an unexpected error; the server's log has the details")


def answer_with(problem: Problem) -> Response:
    """The response with this problem."""
    return Response(problem.body, problem.status, problem.all_headers)


def add_error_handlers(api: FastAPI) -> None:
    """Answer every error with problem details."""

    async def ours(_: Request, error: Exception) -> Response:
        assert isinstance(error, TicketError)
        return answer_with(problem_of(error))

    async def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body") or "the body"
        if first["type"] == "model_attributes_type":
            return answer_with(
                Problem(Code.INVALID, "the body has to be a JSON object, with Content-Type: application/json")
            )
        return answer_with(Problem(Code.INVALID, f"{where}: {first['msg']}"))

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, StarletteHTTPException)
        match error.status_code:
            case 404:
                return answer_with(Problem(Code.NOT_FOUND, "there is no such page"))
            case 405:
                return answer_with(method_not_allowed(*_allowed(api, request)))
            case 400:
                return answer_with(Problem(Code.INVALID, "the body cannot be read: JSON is required"))
            case 413:
                return answer_with(body_too_large(LARGEST_BODY))
            case _:
                return answer_with(UNEXPECTED)

    async def unknown(_: Request, __: Exception) -> Response:
        return answer_with(UNEXPECTED)

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
