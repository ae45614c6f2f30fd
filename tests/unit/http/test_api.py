"""What a request may do and prefers, and which error has which status and code."""

import json
from base64 import b64encode

from app import errors
from app.access import Right
from app.http.access import is_cross_site, names_this_machine, right_of, token_of
from app.http.cycle import prefers_text
from app.http.models import ANSWERS, CODES, DecodeQuery, NewSequence
from app.http.problems import TABLE, problem, problem_of
from app.kinds.table import DECODE_PARAMETERS, KINDS
from app.tickets.request import largest_block

TICKETS, READING, CHANGES = Right
RIGHTS = {
    None: ("GET /healthz", "HEAD /readyz", "POST /livez"),
    TICKETS: ("GET /ticket/photos", "POST /block/photos", "PUT /ticket/photos"),
    READING: ("GET /ticket", "GET //ticket/photos", "GET /livez/", "HEAD /sequence", "OPTIONS /sequence/photos"),
    CHANGES: ("PUT /sequence/photos", "POST /sequence/photos/bump", "POST /tickets/photos", "BREW /metrics"),
}
TOKENS: dict[tuple[str | None, str | None], tuple[bytes | None, ...]] = {
    (None, None): (None, b"Bearer", b"abc", b"Basic " + b64encode(b"me:"), b"Basic !!!", b"Basic \xff"),
    ("abc", "abc"): (b"Bearer abc", b"bearer  abc "),
    (None, "a:bc"): (b"Basic " + b64encode(b"me:a:bc"),),
    ("é", "é"): ("Bearer é".encode(),),
    ("\udcff", "\udcff"): (b"Bearer \xff",),
}
"""The token for drawing and changing, and the one for reading, and headers that have them."""
AS_TEXT = (
    *("text/plain", "TEXT/PLAIN; charset=utf-8", "text/plain, */*", "*/*, text/plain", "text/plain, application/json"),
    "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
)
AS_JSON = (
    *("", "*/*", "application/json", "application/json, text/plain", "text/plain;q=0.5, */*", "text/plain;q=nan"),
    *("text/plain;q=0.9, application/json", "text/plain;q=0, application/json;q=0"),
    *("text/html, application/*;q=0.8, text/plain;q=0.7", "x" * 1020 + ",text/plain"),
)


def test_the_right_that_a_request_needs_and_the_token_of_a_header() -> None:
    for right, requests in RIGHTS.items():
        assert {right_of(*request.split()) for request in requests} == {right}
    for (token, for_reading), headers in TOKENS.items():
        for each in headers:
            assert token_of(each, TICKETS) == token_of(each, CHANGES) == token
            assert token_of(each, READING) == for_reading


def test_a_browser_for_another_site_and_names_of_this_machine_and_others() -> None:
    proxied = {b"sec-fetch-site": b"same-origin", b"origin": b"http://elsewhere.example"}  # its Host has changed
    for headers in ({}, proxied, {b"origin": b"HTTP://Tickets:8000"}):
        assert not is_cross_site({b"host": b"tickets:8000", **headers}), headers
    for site, is_other in ((b"none", False), (b"same-site", False), (b"Cross-Site", True), (b"", True)):
        assert is_cross_site({b"sec-fetch-site": site}) is is_other, site
    for origin in (b"http://tickets", b"http://tickets:8000.elsewhere.example", b"null", b""):
        assert is_cross_site({b"host": b"tickets:8000", b"origin": origin}), origin
    for host in (None, b"localhost", b"LocalHost:8000", b"127.0.0.1:8000", b"[::1]", b"[::1]:8000"):
        assert names_this_machine(host), host
    for host in (b"", b"elsewhere.example", b"localhost.example", b"[::1", b"1.2.3", b":8000", b"\xff"):
        assert not names_this_machine(host), host


def test_what_an_accept_header_prefers_and_how_large_a_block_is() -> None:
    assert [accept for accept in (*AS_TEXT, *AS_JSON) if prefers_text(accept)] == list(AS_TEXT)
    assert [largest_block(each) for each in (1, 2, 6, 7, 65_535)] == [10_000, 10_000, 10_000, 9362, 1]


def test_the_models_have_the_parameters_of_every_kind() -> None:
    assert DecodeQuery.model_fields.keys() == {"kind", "id", *DECODE_PARAMETERS}
    parameters = {name for kind in KINDS.values() for name in kind.parameters}
    assert NewSequence.model_fields.keys() == {"kind", *parameters}
    assert parameters - {"start"} <= ANSWERS["Sequence"]["properties"].keys()


def test_each_error_that_a_client_may_be_told_has_a_code_and_the_document_lists_the_codes() -> None:
    ours = {each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.TicketError)}
    assert ours - set(TABLE) == {errors.TicketError, errors.SettingsError}
    assert set(CODES) == {code for _, code in TABLE.values()} | {"bad-request", "not-found", "method-not-allowed"}


def test_a_detail_has_no_address_and_what_a_client_sent_is_cut_and_can_always_be_written() -> None:
    told = problem_of(errors.NoAnswer("10.0.0.1 did not answer"))
    assert (told.code, told.detail) == ("no-database", "the ticket databases cannot do this now")
    assert problem_of(errors.SettingsError("TICKETS_PORT")).detail == str(errors.Defect())
    cut = json.loads(problem(422, "invalid", "\ud800é" + "x" * 1000).body())
    assert cut["detail"] == "\ud800é" + "x" * 498 + "…"
