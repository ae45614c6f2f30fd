"""What a request asks for in its query string and its Accept header.

A parameter that a path does not have is refused, so that a misspelt `?cuont=3` draws nothing. Names that begin with `_`
are passed over, because browser libraries and proxies add some so that no answer is cached.
"""

import re
from functools import lru_cache
from typing import Annotated, ClassVar

from fastapi import Request
from pydantic import Field

from app.errors import InvalidRequest
from app.http.models import WHOLE, KindName, Missing, OfAKind, SequenceName, Strict, optional
from app.kinds.kind import TICKET_LIMIT

MOST_TICKETS = 1_000
"""The most tickets in one list."""
LARGEST_BLOCK = 10_000
"""The most tickets in one block, unless the ring's increment is so large that a block has fewer."""
_LONGEST_ACCEPT = 1_024
"""Characters of an Accept header that are read."""

_Natural = Annotated[int, Field(ge=0, le=TICKET_LIMIT), WHOLE]


def largest_block(increment: int) -> int:
    """Return the most tickets that a block has with this increment."""
    return min(LARGEST_BLOCK, 65_535 // increment)


async def each_once(request: Request) -> None:
    """Raise InvalidRequest if a query string has a parameter twice, since only one of the values could count."""
    names = [name for name, _ in request.query_params.multi_items()]
    if len(set(names)) < len(names):
        raise InvalidRequest("each query parameter may be given once")


class NoQuery(Strict):
    """The query of a path without parameters, and what every other query derives from."""

    passes_over: ClassVar = "_"


class TicketQuery(NoQuery):
    """How many tickets, and of which shard."""

    count: Annotated[int, Field(ge=1, le=MOST_TICKETS), WHOLE] | Missing = optional("without it a single ticket", 3)
    key: _Natural | Missing = optional("`instagram`, `instagram32`: a number; its remainder is the shard")
    shard: _Natural | Missing = optional("in place of `key`: the shard itself, 0 by default")


class BlockQuery(NoQuery):
    """How large a block."""

    size: Annotated[int, Field(ge=1, le=LARGEST_BLOCK), WHOLE] = Field(
        description="how many tickets; at most 65,535 divided by the ring's increment", examples=[500]
    )


class ListQuery(NoQuery):
    """Which sequences, and how many of them."""

    search: Annotated[str, Field(pattern="^[A-Za-z0-9_]{0,64}$", description="part of the name, in any case")] = ""
    after: SequenceName | Missing = optional("only names behind this one, which need not exist", "albums")
    limit: Annotated[int, Field(ge=1, le=1_000, description="how many at most"), WHOLE] = 1_000


class DecodeQuery(OfAKind, NoQuery):
    """An id of elsewhere, its kind, and the parameters of that kind."""

    kind: Annotated[KindName, Field(examples=["instagram"])]
    id: Annotated[str, Field(min_length=1, examples=["2217813737473025833"])]
    bits: _Natural | Missing = optional("`ticket`: the width of the sequence, 64 by default")
    increment: _Natural | Missing = optional("`ticket`: the increment of the databases")


@lru_cache(maxsize=256)
def prefers_text(accept: str) -> bool:
    """Whether an Accept header prefers text/plain to JSON. Of two with the same quality the first counts."""
    ranks: dict[str, tuple[float, int]] = {}
    for place, part in enumerate(accept[:_LONGEST_ACCEPT].lower().split(",")):
        media, *parameters = (piece.strip() for piece in part.split(";"))
        quality = next((text[2:] for text in parameters if text.startswith("q=")), "1")
        ranks.setdefault(media, (float(quality) if re.fullmatch("[01](\\.[0-9]*)?", quality) else 0.0, -place))
    text = ranks.get("text/plain", (0.0, 0))
    others = ranks.get("application/*", ranks.get("*/*", (0.0, 0)))
    return text[0] > 0 and text > ranks.get("application/json", (others[0], -len(ranks)))
