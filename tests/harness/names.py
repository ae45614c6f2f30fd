"""A name service that can be taken away: what a ticket server's process asks for the addresses of its databases."""

from tests.harness.processes import new_directory, remove_directory

_RESOLVER = """
import asyncio, os, socket, uvloop

resolve = uvloop.Loop.getaddrinfo


async def getaddrinfo(loop, *arguments, **options):
    if os.path.exists(os.environ["NAME_SERVICE_AWAY"]):
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    while os.path.exists(os.environ["NAME_SERVICE_SILENT"]):
        await asyncio.sleep(0.05)
    return await resolve(loop, *arguments, **options)


uvloop.Loop.getaddrinfo = getaddrinfo
"""


class NameService:
    """For servers that are started with its `settings`, and with URLs that name a host. While the file `away` is there
    it fails, while `silent` is there it does not answer."""

    def __init__(self) -> None:
        self._base = new_directory("tickets-names-")
        (self._base / "sitecustomize.py").write_text(_RESOLVER, encoding="utf-8")
        self.away, self.silent = self._base / "away", self._base / "silent"
        self.settings: dict[str, object] = {
            "PYTHONPATH": self._base,
            "NAME_SERVICE_AWAY": self.away,
            "NAME_SERVICE_SILENT": self.silent,
        }

    def __enter__(self) -> "NameService":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        remove_directory(self._base)


def by_name(urls: str) -> str:
    """The same databases, with a host's name in place of its address."""
    return urls.replace("@127.0.0.1:", "@localhost:")
