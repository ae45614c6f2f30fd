"""What an Accept header prefers, how large a block is, and that the models have every parameter of every kind."""

from app.http.models import NewSequence, Sequence
from app.http.query import DecodeQuery, largest_block, prefers_text
from app.kinds.table import DECODE_PARAMETERS, KINDS

AS_TEXT = (
    "text/plain",
    "TEXT/PLAIN; charset=utf-8",
    "text/plain, */*",
    "*/*, text/plain",
    "text/plain, application/json",
    "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
)
AS_JSON = (
    "",
    "*/*",
    "application/json",
    "application/json, text/plain",
    "text/plain;q=0.5, */*",
    "text/plain;q=0.9, application/json",
    "text/plain;q=0, application/json;q=0",
    "text/plain;q=nan",
    "text/html, application/*;q=0.8, text/plain;q=0.7",
    "x" * 1020 + ",text/plain",
)


def test_what_an_accept_header_prefers() -> None:
    assert [accept for accept in (*AS_TEXT, *AS_JSON) if prefers_text(accept)] == list(AS_TEXT)


def test_how_large_a_block_is() -> None:
    assert [largest_block(each) for each in (1, 2, 6, 7, 65_535)] == [10_000, 10_000, 10_000, 9362, 1]


def test_the_models_have_the_parameters_of_every_kind() -> None:
    assert DecodeQuery.model_fields.keys() == {"kind", "id", *DECODE_PARAMETERS}
    parameters = {name for kind in KINDS.values() for name in kind.parameters}
    assert NewSequence.model_fields.keys() == {"kind", *parameters}
    assert parameters - {"start"} <= Sequence.model_fields.keys()
