"""Problems: which error has which status and code, and what a detail may hold."""

import json

import pytest

from app import errors
from app.http.models import CODES
from app.http.problems import TABLE, problem, problem_of

CONTRACT = {
    "unauthenticated": 401, "forbidden": 403, "cross-site": 403, "internal": 500, "no-such-sequence": 404,
    "conflict": 409, "above-ceiling": 409, "force-required": 409, "exhausted": 410, "invalid": 422, "no-database": 503,
    "out-of-time": 503, "draining": 503, "clock-ahead": 503, "unverified": 503, "not-confirmed": 503, "growing": 503,
    "too-many-connections": 503,
}  # fmt: skip
"""The contract's table of errors, without what is wrong with HTTP itself."""


def all_errors(kind: type[errors.TicketError] = errors.TicketError) -> set[type[errors.TicketError]]:
    """This error and all that derive from it."""
    return {kind}.union(*(all_errors(each) for each in kind.__subclasses__()))


def test_the_table_is_the_contracts_and_has_each_error_that_a_client_may_be_told() -> None:
    assert {code: status for status, code in TABLE.values()} == CONTRACT
    assert set(CODES) == {*CONTRACT, "bad-request", "not-found", "method-not-allowed"}
    ours = {kind for kind in all_errors() if kind.__module__ == "app.errors"}
    assert ours - set(TABLE) == {errors.TicketError, errors.SettingsError}


@pytest.mark.parametrize(
    ("error", "status", "code", "says"),
    [
        (errors.NotForThisKind("photos has no blocks"), 409, "conflict", "photos has no blocks"),
        (errors.NoAnswer("10.0.0.1 did not answer"), 503, "no-database", "the ticket databases cannot do this now"),
        (errors.SettingsError("TICKETS_PORT"), 500, "internal", str(errors.Defect())),
        (ValueError("a secret"), 500, "internal", str(errors.Defect())),
    ],
)
def test_the_problem_of_an_error(error: Exception, status: int, code: str, says: str) -> None:
    told = problem_of(error)
    assert (told.status, told.code, told.detail) == (status, code, says)


def test_what_a_client_sent_is_cut_and_can_always_be_written() -> None:
    told = json.loads(problem(422, "invalid", "\ud800é" + "x" * 1000).body())
    assert told["detail"] == "\ud800é" + "x" * 498 + "…"
