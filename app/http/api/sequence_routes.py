"""/sequence: list, show, create and bump sequences."""

from typing import Annotated, Any

from fastapi import Body, FastAPI, Path, Request, Response
from starlette.responses import JSONResponse

from app.clients.turns import Turns
from app.common.sequences import validated
from app.http.api import description as described
from app.http.api import sequence_list
from app.http.api.description import problems
from app.http.api.models import Bump, Bumped, NewSequence, Sequence, Sequences
from app.http.api.sequence_list import LARGEST_PAGE, SEARCH_PATTERN
from app.http.query import Parameters
from app.operations.admin import Admin

Name = Annotated[str, Path(description="the sequence's name")]

SEQUENCE = described.answers(Sequence, "The sequence.", described.SEQUENCE_EXAMPLE)
TAGS: Any = {"tags": ["sequences"], "response_model": None}


def add_sequence_routes(api: FastAPI, admin: Admin, turns: Turns) -> None:
    """Add the routes that read sequences, then the routes that change them."""
    _add_reading(api, admin, turns)
    _add_changes(api, admin)


def _add_reading(api: FastAPI, admin: Admin, turns: Turns) -> None:
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
        **TAGS,
    )
    async def list_sequences(request: Request) -> Response:
        return await sequence_list.answer(admin, turns, request.scope["query_string"])

    @api.head("/sequence/{sequence}", include_in_schema=False)
    @api.get(
        "/sequence/{sequence}",
        summary="Show a sequence",
        responses={200: SEQUENCE, **problems(401, 404, 422, 503)},
        **TAGS,
    )
    async def show_sequence(sequence: Name) -> dict[str, Any]:
        return await admin.sequence(validated(sequence))


def _add_changes(api: FastAPI, admin: Admin) -> None:
    @api.put(
        "/sequence/{sequence}",
        summary="Create a sequence",
        description="Creates it on the ticket databases that are up, and on the others when they come up. A sequence "
        "that exists with these parameters is left unchanged; what is left out is not compared, nor is `start`. Of a "
        "kind's parameters only its own may be given. Kind and parameters never change afterwards.",
        responses={
            200: {**SEQUENCE, "description": "It exists already."},
            201: {**SEQUENCE, "description": "It has been created."},
            **problems(401, 403, 409, 413, 422, 503),
        },
        **TAGS,
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
        **TAGS,
    )
    async def bump_sequence(request: Request, sequence: Name, requested: Bump) -> dict[str, Any]:
        validated(sequence)
        _refuse_parameters(request)
        _audited(request, above=requested.above, force=requested.force)
        return await admin.bump(sequence, requested.above, force=requested.force)


def _refuse_parameters(request: Request) -> None:
    """Raise InvalidRequest for a query parameter, because the changes of a sequence stand in the body.

    If the server ignored `?bits=32`, it would make a sequence that is wrong for ever.
    """
    Parameters(request.scope["query_string"]).refuse_others(())


def _audited(request: Request, **about: object) -> None:
    """Add what the client asked for to the audit line of the request."""
    request.scope["audit"].update({key: value for key, value in about.items() if value is not None})
