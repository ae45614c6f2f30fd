"""The pages for people, and the OpenAPI document."""

import json
from functools import lru_cache
from typing import Annotated, Any

from fastapi import FastAPI, Path, Request, Response
from starlette.responses import HTMLResponse

from app.common.sequences import validated
from app.http.access import Access
from app.http.api import description as described
from app.http.api.description import problems
from app.http.gate import SEQUENCE_PAGE
from app.http.pages.address import address_of
from app.http.pages.docs_page import render as render_docs
from app.http.pages.page import Page
from app.http.pages.sequence_page import SequencePage
from app.http.pages.status_page import StatusPage
from app.http.pages.status_query import LARGEST_PAGE, SORTS, query_of
from app.tickets.desk.front_desk import FrontDesk
from app.tickets.requests.request import LARGEST_COUNT

Name = Annotated[str, Path(description="the sequence's name")]

PAGE = described.text_answer("An HTML page.", "text/html")
TAGS: Any = {"tags": ["operation"], "response_model": None}


def add_page_routes(
    api: FastAPI, access: Access, desk: FrontDesk, status_page: StatusPage, sequence_page: SequencePage
) -> None:
    """Add the pages and the OpenAPI document. The document describes the routes that `api` has by then."""
    _add_status_page(api, status_page)
    _add_sequence_page(api, access, sequence_page)
    _add_description(api, access, desk)


def _add_status_page(api: FastAPI, status_page: StatusPage) -> None:
    @api.head("/", include_in_schema=False)
    @api.get(
        "/",
        summary="The status page",
        responses={200: PAGE, **problems(401, 422)},
        openapi_extra={"parameters": described.page_parameters(LARGEST_PAGE, list(SORTS))},
        **TAGS,
        response_class=HTMLResponse,
    )
    async def status(request: Request) -> Response:
        return _page(await status_page.render(query_of(request.scope["query_string"])))


def _add_description(api: FastAPI, access: Access, desk: FrontDesk) -> None:
    @lru_cache(maxsize=2)  # writing it takes some milliseconds, in which the server answers no other request
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

    @api.head("/docs", include_in_schema=False)
    @api.get("/docs", summary="This description, as a page", responses={200: PAGE, **problems(401)}, **TAGS,
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
        **TAGS,
    )
    async def openapi() -> Response:
        return Response(as_text(desk.largest_block), media_type=described.JSON)

    document(desk.largest_block)  # before the first request, since it takes some milliseconds


def _add_sequence_page(api: FastAPI, access: Access, sequence_page: SequencePage) -> None:
    path = SEQUENCE_PAGE + "{sequence}"

    @api.head(path, include_in_schema=False)
    @api.get(
        path,
        summary="The page of a sequence",
        description="For people: the kind, the position on each ticket database, the rate, and examples to copy. "
        "Programs read `/sequence/{sequence}`.",
        responses={200: PAGE, **problems(401, 404, 422, 503)},
        **TAGS,
        response_class=HTMLResponse,
    )
    async def show(request: Request, sequence: Name) -> Response:
        address, needs_token = address_of(request), not access.tickets_are_free
        return _page(await sequence_page.render(validated(sequence), address, needs_token=needs_token))


def _page(page: Page) -> Response:
    return HTMLResponse(page.html, headers=page.headers)
