"""Each recipe draws from a real ticket server and stores rows, whatever happens to the first URL of its list."""

import itertools
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from tests.harness.mysqld import TicketMySQL
from tests.harness.pair import MySQLPair
from tests.harness.processes import free_port
from tests.harness.schema import PASSWORD, USER
from tests.harness.ticketd import TicketServer
from tests.recipes.conftest import LARGE, TOKEN
from tests.recipes.front import Front
from tests.recipes.languages import HEAVY_LANGUAGES, LANGUAGES, Language, Recipe

pytestmark = pytest.mark.any_engine

ATTEMPT = 3.0
"""Seconds that an attempt may take, as the recipes have it."""
START = 20.0
"""Seconds within which the program of a recipe starts and ends on a busy machine."""


def parameters(*, storing: bool = False) -> list[Any]:
    """All languages, or those whose program has `store`; `make test` leaves the heavy ones out."""
    return [
        pytest.param(language, id=name, marks=[pytest.mark.long] if name in HEAVY_LANGUAGES else [])
        for name, language in {**LANGUAGES, **HEAVY_LANGUAGES}.items()
        if language.stores or not storing
    ]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Language], Recipe]:
    """Prepares the recipe of a language, once."""
    return cache(lambda language: language.prepare(tmp_path_factory.mktemp("recipe")))


@pytest.fixture(params=parameters())
def recipe(request: pytest.FixtureRequest, prepared: Callable[[Language], Recipe]) -> Recipe:
    return prepared(request.param)


_schemas = itertools.count(1)


@pytest.fixture
def application(recipe: Recipe, request: pytest.FixtureRequest, database: str) -> str:
    """Where the recipe stores its rows: a name of a database as its driver wants it."""
    if recipe.language.page != "go.md":
        return database
    pair: MySQLPair = request.getfixturevalue("mysql_pair")
    schema = f"recipe_{next(_schemas)}"
    of_application: TicketMySQL = pair.odd
    of_application.make_schema(schema, tables=False)
    return f"{USER}:{PASSWORD}@tcp({of_application.name})/{schema}"


@pytest.fixture
def take(recipe: Recipe, front: Front) -> Callable[..., list[str]]:
    """Takes ids by the recipe; they have to be those that the front has seen. `urls`: servers that are asked first."""

    def taken(count: int, *urls: str) -> list[str]:
        ran = recipe.run("take", "photos", count, urls=[*urls, front.url], token=TOKEN)
        assert ran.status == 0, ran
        assert ran.lines == front.given
        assert len(set(ran.lines)) == count
        return ran.lines

    return taken


def test_the_ids_are_exact_and_the_token_is_sent(take: Callable[..., list[str]], front: Front) -> None:
    ids = [int(each) for each in take(5)]
    assert min(ids) > LARGE
    assert {each.authorization for each in front.seen} == {f"Bearer {TOKEN}"}


@pytest.mark.parametrize("recipe", parameters(storing=True), indirect=True)
def test_rows_are_stored_under_the_ids_that_were_drawn(recipe: Recipe, front: Front, application: str) -> None:
    ran = recipe.run("store", 7, urls=[front.url], token=TOKEN, database=application)
    assert ran.status == 0, ran
    assert sorted(ran.lines) == sorted(front.given)
    assert len(ran.lines) == 7
    assert len(front.seen) == 2, "one request for the first row, one for all others"


def test_a_dead_server_costs_one_attempt(take: Callable[..., list[str]], front: Front) -> None:
    take(3, f"http://127.0.0.1:{free_port()}")
    assert len(front.seen) == 1


def test_a_silent_server_costs_one_timeout(take: Callable[..., list[str]], front: Front, other_front: Front) -> None:
    other_front.silent = True
    take(3, other_front.url)
    assert len(other_front.seen) == len(front.seen) == 1
    waited = front.seen[0].at - other_front.seen[0].at
    assert ATTEMPT - 2 < waited < ATTEMPT + START, "the front may see the first request late"


def test_a_busy_server_is_passed_over_at_once(take: Callable[..., list[str]], front: Front, other_front: Front) -> None:
    other_front.busy, other_front.retry_after = 1, 30
    take(3, other_front.url)
    assert len(other_front.seen) == len(front.seen) == 1
    assert front.seen[0].at - other_front.seen[0].at < START


@pytest.mark.parametrize(("retry_after", "wait"), [(2, 2.0), (None, 1.0)], ids=["as long as it says", "for a second"])
def test_after_the_last_server_the_recipe_waits(
    take: Callable[..., list[str]], front: Front, retry_after: int | None, wait: float
) -> None:
    front.busy, front.retry_after = 1, retry_after
    take(3)
    first, second = (each.at for each in front.seen)
    assert wait - 0.1 <= second - first < wait + START


def test_after_three_rounds_the_recipe_gives_up(recipe: Recipe, front: Front) -> None:
    front.busy = 100
    ran = recipe.run("take", "photos", 1, urls=[front.url], token=TOKEN)
    assert ran.status != 0
    assert ran.output == ""
    assert "503" in ran.errors or "the front is busy" in ran.errors
    assert len(front.seen) == 3


MISTAKES = [
    pytest.param("no_such_sequence", TOKEN, ("404", "no_such_sequence"), id="no such sequence"),
    pytest.param("photos", "a-wrong-token", ("401", "token"), id="wrong token"),
]


@pytest.fixture
def fronts(front: Front, other_front: Front) -> tuple[Front, Front]:
    return front, other_front


@pytest.mark.parametrize(("sequence", "token", "said"), MISTAKES)
def test_what_the_client_did_wrong_is_not_tried_again(
    recipe: Recipe, fronts: tuple[Front, Front], sequence: str, token: str, said: tuple[str, str]
) -> None:
    first, second = fronts
    began = time.monotonic()
    ran = recipe.run("take", sequence, 1, urls=[first.url, second.url], token=token)
    assert ran.status != 0
    assert ran.output == ""
    assert all(each in ran.errors for each in said), ran.errors
    assert TOKEN not in ran.errors
    assert len(first.seen) == 1
    assert not second.seen
    assert time.monotonic() - began < START


def test_a_server_without_tokens_ignores_the_token(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> None:
    with TicketServer(None, data_dir=tmp_path_factory.mktemp("open")) as server:
        server.wait_ready()
        ran = recipe.run("take", "photos", 2, urls=[server.url], token="anything")
    assert (ran.status, len(ran.lines)) == (0, 2), ran
