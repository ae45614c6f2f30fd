"""Errors as problems."""

import inspect
import json

import pytest

from app.common import errors
from app.http.problems import Code, Problem, method_not_allowed, problem_of
from app.tickets.desk.front_desk import OUTCOMES, outcome_of

ALL = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, errors.TicketError)]


@pytest.mark.parametrize("kind", ALL)
def test_every_error_of_ours_has_a_status_and_an_outcome(kind: type[errors.TicketError]) -> None:
    problem = problem_of(kind())
    assert problem.status in {404, 409, 410, 422, 500, 503}
    assert outcome_of(kind()) in OUTCOMES.values()
    assert problem.detail


@pytest.mark.parametrize("kind", [errors.TicketDatabaseError, errors.TicketDatabaseMisconfigured, errors.MarkRefused])
def test_what_a_database_says_is_not_for_clients(kind: type[errors.TicketError]) -> None:
    problem = problem_of(kind("Access denied for user 'tickets'@'10.0.0.7'"))
    assert problem.status == 503
    assert "denied" not in problem.detail


def test_a_problem_is_rfc_9457() -> None:
    problem = problem_of(errors.UnknownSequence("there is no sequence x"))
    assert json.loads(problem.body) == {
        "type": "about:blank", "title": "Not Found", "status": 404, "detail": "there is no sequence x",
        "code": "no-such-sequence",
    }  # fmt: skip
    assert problem.all_headers == {"content-type": "application/problem+json", "cache-control": "no-store"}
    assert problem_of(errors.Draining()).all_headers["retry-after"] == "1"


def test_a_405_says_what_is_allowed() -> None:
    assert dict(method_not_allowed("GET", "POST").headers) == {"allow": "GET, POST"}


@pytest.mark.parametrize("detail", ["", "ünï", '"\\\n\x00', "\ud800 half a pair", "x" * 100_000])
def test_any_detail_makes_good_json(detail: str) -> None:
    body = Problem(Code.INVALID, detail).body
    assert len(body) < 1500
    assert json.loads(body)["detail"].startswith(detail[:400])
