"""What HTTP costs without any ticket: the same uvicorn, the same settings, the same answer, but always the same id.

`fastapi`: a route with a path parameter that returns a small dict, as FastAPI's own first page has it. It is the
yardstick: what a service would reach that did nothing at all. `asgi`: no framework either; the ceiling.
"""

import argparse
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn
from fastapi import FastAPI

_BODY = b'{"sequence":"photos","id":7,"id_str":"7"}'
_HEADERS = [
    (b"content-type", b"application/json"),
    (b"content-length", b"%d" % len(_BODY)),
    (b"cache-control", b"no-store"),
]

Message = MutableMapping[str, Any]

constant = FastAPI()


@constant.get("/ticket/{sequence}", response_model=None)
async def ticket(sequence: str) -> dict[str, object]:
    """Answers every request with the same ticket."""
    return {"sequence": sequence, "id": 7, "id_str": "7"}


async def bare(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    """Answers every request with the same ticket, without a framework."""
    if scope["type"] != "http":
        return
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": _BODY})


def main() -> None:
    """Serve one of the two until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", choices=["fastapi", "asgi"])
    parser.add_argument("port", type=int)
    chosen = parser.parse_args()
    uvicorn.run(
        constant if chosen.which == "fastapi" else bare,
        host="127.0.0.1",
        port=chosen.port,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=4096,
    )


if __name__ == "__main__":
    main()
