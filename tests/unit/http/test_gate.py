"""The gate ahead of FastAPI: which changes are let through, and how long a guess waits."""

import asyncio

import pytest
from pydantic import SecretStr
from starlette.types import Receive, Scope, Send

from app.clients.denials import FREE_GUESSES, PAUSE_SECONDS, Denials
from app.clients.turns import Turns
from app.http.access import Access
from app.http.gate import Gate
from app.operations.metrics import Metrics
from tests.fakes.virtual_time import virtual_time
from tests.unit.http.asgi import ask

TOKEN = "an administrator's token"
RIGHT: dict[str, str | bytes] = {"authorization": f"Bearer {TOKEN}"}
GUESS: dict[str, str | bytes] = {"authorization": "Bearer a guess at the token"}


async def let_through(scope: Scope, receive: Receive, send: Send) -> None:
    """The application behind the gate."""
    await send({"type": "http.response.start", "status": 201, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def gate(*, tokens: bool = False, listens_locally: bool = True) -> Gate:
    access = Access((), [SecretStr(TOKEN)] if tokens else ())
    return Gate(let_through, access, Denials(Metrics()), Turns(), listens_locally=listens_locally)


@pytest.mark.parametrize(
    ("tokens", "listens_locally", "status"),
    [(False, True, 403), (False, False, 201), (True, True, 201), (True, False, 201)],
    ids=["loopback", "beyond loopback", "loopback with a token", "beyond loopback with a token"],
)
@virtual_time
async def test_a_host_by_name_is_refused_where_any_page_could_have_it_lead_here(
    tokens: bool, listens_locally: bool, status: int
) -> None:
    behind = gate(tokens=tokens, listens_locally=listens_locally)
    given: dict[str, str | bytes] = (RIGHT if tokens else {}) | {"host": "tickets.example"}
    answer = await ask(behind, "/sequence/photos", method="PUT", headers=given)
    assert answer.status == status


@pytest.mark.parametrize(("method", "target"), [("PUT", "/sequence/photos"), ("POST", "/sequence/photos/bump")])
@virtual_time
async def test_a_guess_at_the_token_for_changes_waits(method: str, target: str) -> None:
    behind = gate(tokens=True)
    now = asyncio.get_running_loop().time
    began = now()
    for _ in range(FREE_GUESSES):
        assert (await ask(behind, target, method=method, headers=GUESS)).status == 401
    assert now() == began
    assert (await ask(behind, target, method=method, headers=GUESS)).status == 401
    assert now() - began == pytest.approx(PAUSE_SECONDS)
    assert (await ask(behind, target, method=method, headers=RIGHT)).status == 201
    assert (await ask(behind, target, method=method)).status == 401  # no token: no guess
    assert now() - began == pytest.approx(PAUSE_SECONDS)
