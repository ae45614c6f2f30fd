"""The network between simulated ticket servers and fake databases: delays, losses, cuts, standstills, late answers.

A request that was sent travels on whatever becomes of its sender: it takes effect at the database while the sender
stands still, after the sender has given the call up, and after the sender was killed.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

from app.databases.address import Address
from app.databases.session import Connect, Residue, RingRow, Write
from app.errors import DatabaseError, DatabaseFailed, SequenceError
from tests.fakes.server import FakeServer
from tests.fakes.session import FakeSession
from tests.model.simulation import Loop, Process

T = TypeVar("T")


class Weather(NamedTuple):
    """How likely a packet is slow (tens of milliseconds), late (up to 20 s), and lost together with its connection."""

    slow: float = 0.01
    late: float = 0.0
    lost: float = 0.0


ALL = ""
"""Stands for every client of a database."""


class Path(NamedTuple):
    """From which process to which address."""

    client: str
    address: str


class Packet(NamedTuple):
    """A packet on its way. refuse: what happens where its link is cut with resets, None for an answer."""

    path: Path
    what: str
    arrive: Callable[[], None]
    refuse: Callable[[], None] | None = None

    def __str__(self) -> str:
        return f"{self.what} at {self.path.address}"


@dataclass(eq=False)
class Hold:
    """Stops packets of a kind on a path: "mark" is a request, "mark answer" its answer. caught: it has one."""

    what: str
    path: Path
    caught: asyncio.Event = field(default_factory=asyncio.Event)
    packets: list[Callable[[], None]] = field(default_factory=list)
    is_over: bool = False

    def go_on(self) -> None:
        """Let the packets go on, and stop no more."""
        self.is_over = True
        for packet in self.packets:
            packet()


class Network:
    """Who reaches whom. `places` has the server that runs at each address."""

    def __init__(self, loop: Loop, chance: random.Random) -> None:
        self.loop, self.chance, self.weather = loop, chance, Weather()
        self.places: dict[str, FakeServer] = {}
        self.recorded: dict[FakeServer, float] = {}
        """When the ring record of a server was written last."""
        self.over = False
        """The schedule has ended: every call fails at once."""
        self._cut: dict[Path, bool] = {}
        self._parked: list[Packet] = []
        self._holds: list[Hold] = []

    # --- what happens to it ------------------------------------------------------------------------------------------

    def cut(self, client: str, address: str, *, silent: bool = True) -> None:
        """Cut a link. silent: what is sent waits or is lost; otherwise every call fails at once.

        With ALL as the client the database stands still: it answers nothing, its connections stay, and nothing is lost.
        """
        self._cut[Path(client, address)] = silent

    def heal(self, client: str, address: str) -> None:
        """Mend a link. What waited there goes on."""
        self._cut.pop(Path(client, address), None)
        self._unpark()

    def calm(self) -> None:
        """Mend all that is wrong with the network."""
        self.weather = Weather()
        self._cut.clear()
        for hold in self._holds:
            hold.go_on()
        self._unpark()

    def hold(self, what: str, client: str, address: str) -> Hold:
        """Stop the packets of this kind on this path."""
        hold = Hold(what, Path(client, address))
        self._holds.append(hold)
        return hold

    def reaches(self, client: str, address: str) -> bool:
        """Whether a packet that is sent now would arrive at a running server."""
        server = self.places.get(address)
        return server is not None and not server.down and not self._is_cut(Path(client, address))

    def _is_cut(self, path: Path) -> bool:
        return path in self._cut or Path(ALL, path.address) in self._cut

    # --- packets -----------------------------------------------------------------------------------------------------

    def connector(self, process: Process) -> Connect:
        """Return the function that opens sessions of this process."""

        async def connect(address: Address, residue: Residue | None, seconds: float) -> FakeSession:
            path = Path(process.name, address.name)
            answer: asyncio.Future[FakeSession] = self.loop.create_future()
            self.send(path, "connect", lambda: self._accept(path, residue), answer)
            return await answer

        return connect

    def _accept(self, path: Path, residue: Residue | None) -> FakeSession:
        server = self.places.get(path.address)
        if server is None or server.down:
            raise DatabaseFailed("cannot be reached")
        return Wire(self, path, server, residue)

    def send(self, path: Path, what: str, effect: Callable[[], Any], answer: "asyncio.Future[Any]") -> None:
        """Send a request: `effect` takes place at the database, and its result or error becomes the answer."""
        if self.over:
            answer.set_exception(DatabaseFailed("the schedule is over"))
            return

        def arrive() -> None:
            try:
                result, error = effect(), None
            except DatabaseError as raised:
                result, error = None, raised
            self._travel(Packet(path, f"{what} answer", lambda: deliver(result, error)))

        def deliver(result: object, error: DatabaseError | None) -> None:
            if not answer.done():
                answer.set_result(result) if error is None else answer.set_exception(error)

        def refuse() -> None:
            deliver(None, DatabaseFailed("cannot be reached"))

        self._travel(Packet(path, what, arrive, refuse))

    def _travel(self, packet: Packet) -> None:
        """Let a packet come to its end after a while, unless it is lost."""
        weather, chance = self.weather, self.chance
        fate = chance.random()
        delay = 0.0002 + 0.0018 * chance.random() ** 2
        if fate < weather.lost:
            self.loop.note(packet.path.client, f"{packet}: lost")
            return
        if fate < weather.lost + weather.late:
            delay = 20.0 * chance.random() ** 2
            self.loop.note(packet.path.client, f"{packet}: late by {delay:.3f} s")
        elif fate < weather.lost + weather.late + weather.slow:
            delay = 0.1 * chance.random()
        self.loop.after(delay, self._pass, packet)

    def _pass(self, packet: Packet) -> None:
        """A packet is at its end: it arrives, waits until something is mended, is lost, or is turned away."""
        for hold in self._holds:
            if (hold.what, hold.path, hold.is_over) == (packet.what, packet.path, False):
                self.loop.note(packet.path.client, f"{packet}: held")
                hold.packets.append(partial(self._pass, packet))
                hold.caught.set()
                return
        silent = self._cut.get(packet.path)
        if not self._is_cut(packet.path):
            self.loop.note(packet.path.client, str(packet))
            packet.arrive()
        elif silent is False and packet.refuse is not None:
            packet.refuse()
        elif silent is None or self.chance.random() < 0.5:
            self._parked.append(packet)

    def _unpark(self) -> None:
        parked, self._parked = self._parked, []
        for packet in parked:
            if self._is_cut(packet.path):
                self._parked.append(packet)
            else:
                self.loop.after(0.3 * self.chance.random() ** 3, self._pass, packet)


class Wire(FakeSession):
    """A session at the other end of the network. Its effects belong to no process."""

    def __init__(self, network: Network, path: Path, server: FakeServer, residue: Residue | None) -> None:
        super().__init__(server, path.client, _never, residue)
        self._network = network
        self._path = path
        self._under_way: asyncio.Future[Any] | None = None

    def abort(self) -> None:
        """Close the connection. A request that was sent may still take effect."""
        self._closed = True
        self.server.open.discard(self)
        if self._under_way is not None and not self._under_way.done():
            self._under_way.set_exception(DatabaseFailed("the connection was closed"))

    def reached(self) -> list[FakeServer]:
        """The servers that the client of this session reaches now."""
        places = self._network.places.items()
        return [server for address, server in places if self._network.reaches(self._path.client, address)]

    def _write_ring(self, old: RingRow, new: RingRow) -> bool:
        done = super()._write_ring(old, new)
        if done:
            self._network.recorded[self.server] = self._network.loop.now
        return done

    async def write(self, writes: Sequence[Write], stamp: str | None) -> list[bool]:
        """See `Session.write`. Scripts know writes apart by their book."""
        what = f"write {writes[0].book}"
        return await self._call(what, lambda: [self._write(each, stamp) for each in writes], writes=True)

    async def _call(self, what: str, effect: Callable[[], T], *, writes: bool = False) -> T:
        assert self._under_way is None, "a session runs one call at a time"
        if self._closed:
            self.server.misused += 1
            raise DatabaseFailed("the connection is closed")
        answer: asyncio.Future[T] = self._network.loop.create_future()
        self._under_way = answer
        self._network.send(self._path, what, lambda: self._arrived(effect, writes), answer)
        try:
            return await answer
        except BaseException as error:
            if not isinstance(error, SequenceError):
                self.abort()
            raise
        finally:
            self._under_way = None

    def _arrived(self, effect: Callable[[], T], writes: bool) -> T:
        if self._network.places.get(self._path.address) is not self.server:
            raise DatabaseFailed("another machine answers there")
        return self._apply(effect, writes)


async def _never(_client: str, _server: FakeServer, _what: str) -> None:
    raise AssertionError("a wire waits for its network")
