"""One input: what is sent, on how many connections, and how."""

import base64
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

Port = Literal["http", "redis"]
TOKEN = b"a-token-of-16-chars"
"""The token of the servers that want one."""
SETTINGS: dict[str, dict[str, object]] = {
    "plain": {},
    "reserve": {"TICKETS_RESERVE_SECONDS": 10},
    "tokens": {"TICKETS_TOKENS": TOKEN.decode(), "TICKETS_RESERVE_SECONDS": 10},
}
"""What the servers that are attacked are started with, by a name."""


@dataclass(frozen=True)
class Case:
    """An input.

    Args:
        port: The port that it is sent to.
        setting: The name in `SETTINGS` of the server that it is sent to.
        connections: How many connections send it at the same time.
        opening: Bytes that each connection sends first, once.
        unit: Bytes that each connection sends again and again after that.
        reads: Whether the connections read what the server answers.
        waits: Whether a connection sends the next unit only when the last one brought an answer.
        piece: The most bytes of one write; 0 for no limit.
        units: After how many units a connection is closed and opened again; 0 for never.
    """

    port: Port
    setting: str
    connections: int
    unit: bytes
    opening: bytes = b""
    reads: bool = True
    waits: bool = False
    piece: int = 0
    units: int = 0

    def with_changes(self, **changes: Any) -> Self:
        """This case with other values of these attributes."""
        return replace(self, **changes)

    def __str__(self) -> str:
        how = [word for word, is_so in (("unread", not self.reads), ("waits", self.waits)) if is_so]
        how += [f"pieces of {self.piece}"] * bool(self.piece) + [f"closed after {self.units}"] * bool(self.units)
        opening = f"{_shown(self.opening)}, then " if self.opening else ""
        return (
            f"{self.port} {self.setting} x{self.connections} {' '.join(how)}: "
            f"{opening}{_shown(self.unit)} ({len(self.unit):,} bytes)"
        )

    def to_json(self) -> str:
        """The case as one line."""
        return json.dumps(
            asdict(self)
            | {name: base64.b64encode(getattr(self, name)).decode() for name in ("opening", "unit")}
        )  # fmt: skip

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The case that `to_json` wrote."""
        given = json.loads(text)
        return cls(**given | {name: base64.b64decode(given[name]) for name in ("opening", "unit")})

    def save(self, folder: Path, name: str) -> Path:
        """Write the case into a file of this folder, and return the file."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.json"
        path.write_text(self.to_json() + "\n", encoding="ascii")
        return path


def _shown(data: bytes) -> str:
    return repr(data)[1:] if len(data) <= 96 else f"{repr(data[:72])[1:]} ... {repr(data[-16:])[1:]}"
