"""HTTP in front of a fake ticket server: all but tickets and blocks."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pydantic import SecretStr

from app.clients.denials import Denials
from app.clients.turns import Turns
from app.http.access import Access
from app.http.api.routes import make_api
from app.http.pages.sequence_page import SequencePage
from app.http.pages.status_page import StatusPage
from app.operations.rates import Rates
from tests.fakes.ticket_database import TRUE_TIME
from tests.fakes.ticket_server import FakeTicketServer, Site
from tests.unit.http.asgi import Answer, ask


def now_ms() -> float:
    """The true time."""
    return (TRUE_TIME + asyncio.get_running_loop().time()) * 1000


class Front:
    """HTTP in front of a fake ticket server."""

    def __init__(self, server: FakeTicketServer, tokens: tuple[str, ...] = ()) -> None:
        self.server = server
        self.rates = rates = Rates(server.admin.progress, asyncio.get_running_loop().time)
        page = StatusPage(server.admin, rates, server.metrics, Turns(), 8000)
        of_sequence = SequencePage(server.admin, rates, redis_port=6379)
        access, denials = Access([SecretStr(token) for token in tokens], ()), Denials(server.metrics)
        self.api = make_api(
            server.admin,
            access,
            denials,
            page,
            server.desk,
            sequence_page=of_sequence,
            turns=Turns(),
            listens_locally=True,
        )

    async def get(self, target: str, status: int = 200, method: str = "GET", **headers: str) -> Answer:
        answer = await ask(self.api, target, method=method, headers=dict(headers))
        assert answer.status == status, answer.body
        return answer

    async def refused(self, target: str, status: int = 422) -> str:
        answer = await self.get(target, status)
        assert answer.headers["content-type"] == "application/problem+json"
        return str(answer.json()["detail"])

    async def make(self, name: str, kind: str, **parameters: int) -> None:
        assert (await self.server.admin.make(name, kind, parameters))[0]

    async def id_of(self, name: str) -> str:
        return str((await self.server.desk.take(name))[0])


@asynccontextmanager
async def front(databases: int = 2, tokens: tuple[str, ...] = ()) -> AsyncIterator[Front]:
    async with Site(databases) as site:
        yield Front(await site.ticket_server(), tokens)
