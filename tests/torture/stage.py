"""What the torture plays on: database servers, ticket servers that are processes, and the links between them."""

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.servers import DatabaseServer, engines
from tests.servers_programs import template
from tests.servers_proxy import Proxy

DATABASE = "tickets"


class Worker:
    """One ticket server. where: the URLs of its databases, or the folder of its pair. links: to the databases.

    process: runs it now. said: what that has said last, see `worker.Callers.tell`.
    """

    def __init__(self, number: int, folder: Path, where: str, links: list[Proxy]) -> None:
        self.name, self.links = f"worker-{number}", links
        self.process: asyncio.subprocess.Process
        self.said: dict[str, Any] = {}
        self._folder, self._where, self._serial = folder, where, 0
        self._reading: asyncio.Task[None]

    async def start(self) -> None:
        """Start a process."""
        self._serial += 1
        stem = self._folder / f"{self.name}-{self._serial}"
        command = (sys.executable, "-m", "tests.torture.worker", f"{self.name}:1", f"{stem}.log", self._where)
        with stem.with_suffix(".errors").open("w") as errors:
            pipe = asyncio.subprocess.PIPE
            self.process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=errors)
        self._reading = asyncio.create_task(self._read(self.process.stdout))

    async def _read(self, output: asyncio.StreamReader | None) -> None:
        while output is not None and (line := await output.readline()):
            with contextlib.suppress(ValueError):  # a killed process leaves part of a line
                self.said = json.loads(line)
        self.said = {}

    def serves(self, since: float) -> bool:
        """Whether it has handed out a ticket since a moment."""
        return bool(self.said.get("last", 0.0) > since)

    def is_settled(self, since: float) -> bool:
        """Whether it has said since a moment that all databases are in sight, and that none may yet go back."""
        said = self.said
        return said.get("time", 0.0) > since and not said["warnings"] and None not in said["lives"]

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process, unless it has ended."""
        if self.process.returncode is None:
            self.process.send_signal(number)

    async def end(self, *, clean: bool = False) -> int:
        """End the process, with SIGKILL unless `clean`; return its exit status. Raises TimeoutError after a minute."""
        async with asyncio.timeout(60):
            if clean and self.process.stdin is not None:
                self.process.stdin.close()
            else:
                self.send(signal.SIGKILL)
            await self._reading
            return await self.process.wait()


class Stage(contextlib.AsyncExitStack):
    """Database servers, in the order of their offsets, and workers. Closing it ends everything.

    folder: for logs and copies; an embedded pair is in its folder `pair`.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.servers: list[DatabaseServer] = []
        self.workers: list[Worker] = []

    async def open(self, engine: str, databases: int, workers: int) -> None:
        """Start everything. For SQLite there are no database servers."""
        for each in engines():
            if each == engine:
                source = await asyncio.to_thread(template, each, self.folder / "templates")
                self.servers = [DatabaseServer(each, source) for _ in range(databases)]
        assert self.servers or engine == "sqlite", f"no {engine} on this machine"
        for server in self.servers:
            self.callback(server.close)
            await asyncio.to_thread(self.start, server, fresh=True)
        for number in range(1, workers + 1):
            links = [await self.enter_async_context(Proxy(server.port)) for server in self.servers]
            urls = [server.url(DATABASE, link.port) for server, link in zip(self.servers, links, strict=True)]
            worker = Worker(number, self.folder, " ".join(urls) or str(self.folder / "pair"), links)
            self.workers.append(worker)
            await worker.start()
            self.push_async_callback(worker.end)

    def start(self, server: DatabaseServer, *, fresh: bool = False) -> None:
        """Start a database server. fresh: its data is that of an empty server."""
        server.start()
        if fresh:
            server.create_database(DATABASE)

    async def wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until this holds; False where it does not in so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not condition():  # noqa: ASYNC110 - what other processes have said
                    await asyncio.sleep(0.1)
        return condition()

    def lives(self) -> set[tuple[str, ...]]:
        """The lives of all databases as the workers have said, one entry if they agree."""
        return {tuple(worker.said.get("lives", ())) for worker in self.workers}
