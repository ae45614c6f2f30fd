"""/decode: what an id says."""

from typing import Annotated, Any

from fastapi import FastAPI, Path, Request

from app.common.errors import InvalidRequest
from app.http.api import description as described
from app.http.api.description import problems
from app.http.api.models import Decoded
from app.http.query import Parameters
from app.kinds.table import DECODE_PARAMETERS, KINDS
from app.operations.decoding import Decoding

LARGEST_PARAMETER = 2**63 - 1
_KNOWN = ("kind", "id", *DECODE_PARAMETERS)

Name = Annotated[str, Path(description="the sequence's name")]
Id = Annotated[str, Path(description="an id of it")]


def add_decode_routes(api: FastAPI, decoding: Decoding) -> None:
    """Add both forms: an id of a sequence, and one of elsewhere."""
    tags: Any = {"tags": ["sequences"], "response_model": None}
    answer = described.answers(Decoded, "What the id says.", described.DECODED_EXAMPLE)

    @api.head("/decode/{sequence}/{id}", include_in_schema=False)
    @api.get(
        "/decode/{sequence}/{id}",
        summary="Read an id",
        description="What an id of this sequence says, by its kind. One that cannot be of this sequence, or that is "
        "from more than 60 s in the future, is refused.",
        responses={200: answer, **problems(401, 404, 422, 503)},
        **tags,
    )
    async def decode(request: Request, sequence: Name, id: Id) -> dict[str, Any]:
        Parameters(request.scope["query_string"]).refuse_others(())
        return await decoding.of_sequence(sequence, id)

    @api.head("/decode", include_in_schema=False)
    @api.get(
        "/decode",
        summary="Read an id of elsewhere",
        description="What an id says that was made elsewhere, in a kind that is known here. It may be from the future. "
        "A parameter of the kind that is left out has its default.",
        responses={200: answer, **problems(401, 422)},
        openapi_extra={"parameters": described.decode_parameters()},
        **tags,
    )
    async def decode_elsewhere(request: Request) -> dict[str, Any]:
        return decoding.of_elsewhere(*_asked(request.scope["query_string"]))


def _asked(query: bytes) -> tuple[str, dict[str, int], str]:
    """The kind, its parameters and the id of a query string. Raises InvalidRequest."""
    given = Parameters(query)
    given.refuse_others(_KNOWN)
    kind, id_text = given.text("kind"), given.text("id")
    if kind is None or id_text is None:
        raise InvalidRequest(f"kind and id are required; kind is one of {', '.join(KINDS)}")
    numbers = {name: given.number(name, LARGEST_PARAMETER, least=0) for name in DECODE_PARAMETERS}
    return kind, {name: value for name, value in numbers.items() if value is not None}, id_text
