"""What the end of a drain does, and in which order."""

import asyncio
import os
import signal
from types import SimpleNamespace
from typing import Any, cast

from app.server import Drain


async def test_commands_that_wait_for_others_are_asked_for_before_the_desk_is_closed() -> None:
    """They have come in time, and are not refused because they share a statement."""
    desk, admin = SimpleNamespace(closed=False), SimpleNamespace(draining=False)
    was_closed: list[bool] = []
    has_ended = asyncio.Event()
    door = SimpleNamespace(stop=lambda: was_closed.append(desk.closed))
    server = SimpleNamespace(stop=has_ended.set)
    drain = Drain(cast(Any, SimpleNamespace(desk=desk, admin=admin)), cast(Any, server), cast(Any, door), seconds=0.01)
    with drain.on_signals():
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(20):
            await has_ended.wait()
    assert admin.draining
    assert was_closed == [False]
    assert desk.closed
