"""A database that comes back to thousands of marks that were superseded while it was away."""

import asyncio

from app.databases.protocol import Mark
from app.tickets.ring.ring import Status
from tests.fakes.ticket_server import Site
from tests.fakes.virtual_time import virtual_time
from tests.unit.tickets.ledgers import mark_about


@virtual_time
async def test_a_database_whose_marks_are_all_superseded_lets_others_in_meanwhile() -> None:
    async with Site(3, increment=3) as site:
        names = [f"s{number}" for number in range(2_000)]
        for about in (1, 2):
            for witness in site.servers:
                if witness.offset != about:
                    token = "new" if witness.offset != 3 else "old"
                    mark = 100 if token == "new" else 50
                    witness.keep([Mark(name, about, 3, mark, mark, f"{token}.t:1") for name in names])
        began = asyncio.get_running_loop().time()
        server = await site.ticket_server()
        assert [member.status for member in server.ring.members] == [Status.UP] * 3
        assert asyncio.get_running_loop().time() - began < 3.0
        assert mark_about(site, 1, on=3, sequence="s1999").mark == 100
