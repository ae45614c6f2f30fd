"""The query of the status page."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from app.common.errors import InvalidRequest
from app.http.query import LONGEST_NUMBER, Parameters
from app.kinds.table import DECODE_PARAMETERS

LARGEST_PAGE = 999_999
"""The largest number of a page."""
SORTS = {"rate": "fastest first", "headroom": "least headroom first", "end": "first to end first"}
"""By what the table can be sorted, and the order in words. Without any of these the page chooses."""


@dataclass(frozen=True, slots=True)
class AskedId:
    """An id, and what it is read as: an id of the sequence `of`, or of a kind with parameters. All as given."""

    of: str
    kind: str
    id_text: str
    parameters: Mapping[str, str]

    @property
    def numbers(self) -> dict[str, int]:
        """The parameters as numbers. Raises InvalidRequest."""
        for name, text in self.parameters.items():
            if not (text.isascii() and text.isdigit() and len(text) <= LONGEST_NUMBER):
                raise InvalidRequest(f"{name} has to be a whole number, in digits")
        return {name: int(text) for name, text in self.parameters.items()}


@dataclass(frozen=True, slots=True)
class StatusQuery:
    """Which sequences the page shows, and the id that it reads.

    `search`: only names that contain this. `number`: of the page. `sort`: a key of SORTS, or empty. `warned`: only
    sequences with a warning.
    """

    search: str
    number: int
    sort: str
    warned: bool
    asked: AskedId

    @property
    def kept(self) -> dict[str, str]:
        """The parameters that the page's links and forms keep: all but the number of the page and the id."""
        kept = {"search": self.search, "sort": self.sort, "warned": "1" if self.warned else ""}
        return {name: value for name, value in kept.items() if value}

    def page(self, number: int) -> str:
        """The address of a page of the same table."""
        return f"/?{urlencode({**self.kept, 'page': number})}"

    def sorted_by(self, sort: str) -> str:
        """The address of the first page of the same table, sorted like this."""
        return f"/?{urlencode({**self.kept, 'sort': sort})}#sequences"


def query_of(query: bytes) -> StatusQuery:
    """The query of a query string. Raises InvalidRequest."""
    given = Parameters(query)
    texts = {name: (given.text(name) or "").strip() for name in ("of", "kind", "id", *DECODE_PARAMETERS)}
    sort = given.text("sort") or ""
    if sort and sort not in SORTS:
        raise InvalidRequest(f"sort has to be one of {', '.join(SORTS)}")
    parameters = {name: texts[name] for name in DECODE_PARAMETERS if texts[name]}
    return StatusQuery(
        search=given.text("search") or "",
        number=given.number("page", LARGEST_PAGE) or 1,
        sort=sort,
        warned=given.number("warned", 1) is not None,
        asked=AskedId(texts["of"], texts["kind"], texts["id"], parameters),
    )
