"""GET /sequence: the sequences by name, a page at a time."""

import json
import re
from bisect import bisect_right
from typing import NamedTuple
from urllib.parse import urlencode

from starlette.responses import Response

from app.clients.turns import Turns
from app.common.errors import InvalidRequest
from app.common.sequences import is_name
from app.common.slices import in_slices
from app.http.query import Parameters
from app.operations.admin import Admin

LARGEST_PAGE = 1_000
"""The largest number of sequences in one answer, and the default."""
SEARCH_PATTERN = "[A-Za-z0-9_]{0,64}"
_SEARCH = re.compile(SEARCH_PATTERN)


class Query(NamedTuple):
    """Which sequences to list: at most `limit`, after the name `after`, whose names contain `search`."""

    limit: int | None
    after: str
    search: str

    def onward(self, last: str) -> str:
        """The query string of the page after the name `last`."""
        values = {"limit": self.limit, "after": last, "search": self.search}
        return urlencode({key: value for key, value in values.items() if value})


def parameters_of(query: bytes) -> Query:
    """The query of a query string. Raises InvalidRequest."""
    given = Parameters(query)
    limit, after, search = given.number("limit", LARGEST_PAGE), given.text("after"), given.text("search")
    if after is not None and not is_name(after):
        raise InvalidRequest("after has to be a name: 1 to 64 letters, digits and underscores, a letter first")
    if search is not None and not _SEARCH.fullmatch(search):
        raise InvalidRequest("search has to be part of a name: up to 64 letters, digits and underscores")
    return Query(limit, after or "", search or "")


async def answer(admin: Admin, turns: Turns, query: bytes) -> Response:
    """The requested page. Raises InvalidRequest."""
    asked = parameters_of(query)
    names = admin.names(asked.search)
    start = bisect_right(names, asked.after)
    page = names[start : start + (asked.limit or LARGEST_PAGE)]
    onward = page[-1] if start + len(page) < len(names) else None
    listed = [_json(admin.described(part))[1:-1] async for part in in_slices(page, pause=turns.wait_for_another)]
    rest = _json({"next": onward, "total": len(names)})
    body = f'{{"sequences":[{",".join(filter(None, listed))}],{rest[1:]}'
    headers = {} if onward is None else {"link": f'</sequence?{asked.onward(onward)}>; rel="next"'}
    return Response(body, headers=headers, media_type="application/json")


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
