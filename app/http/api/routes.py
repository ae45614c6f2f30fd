"""The HTTP API except tickets and blocks: ordinary FastAPI behind a gate."""

from fastapi import FastAPI
from starlette.types import ASGIApp

from app.clients.denials import Denials
from app.clients.turns import Turns
from app.common.version import VERSION
from app.http.access import Access
from app.http.api.decode_routes import add_decode_routes
from app.http.api.errors import add_error_handlers
from app.http.api.operation_routes import add_operation_routes
from app.http.api.page_routes import add_page_routes
from app.http.api.sequence_routes import add_sequence_routes
from app.http.gate import Gate
from app.http.pages.sequence_page import SequencePage
from app.http.pages.status_page import StatusPage
from app.operations.admin import Admin
from app.tickets.desk.front_desk import FrontDesk


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
    add_operation_routes(api, admin)
    add_sequence_routes(api, admin, turns)
    add_decode_routes(api, admin.decoding)
    add_page_routes(api, access, desk, status_page, sequence_page)
    add_error_handlers(api)
    return Gate(api, access, denials, turns, listens_locally=listens_locally)
