"""`uuid4`: RFC 9562's version 4, by the standard library."""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

from app.kinds.kind import RandomKind
from app.kinds.notation import uuid_number, uuid_text


class Uuid4(RandomKind):
    """122 random bits; no time, and no order."""

    name = "uuid4"
    bits = 128
    ordered = False

    def odds(self, parameters: Mapping[str, int]) -> str:
        return "122 random bits: among 10^12 ids the odds of one equal pair are 1 to 10^13"

    def make(self, parameters: Mapping[str, int], now_ms: Callable[[], int]) -> Callable[[int], list[str]]:
        return lambda count: [str(uuid4()) for _ in range(count)]

    def decode(self, parameters: Mapping[str, int], id_text: str) -> dict[str, Any]:
        return {"kind": self.name, "id_str": uuid_text(uuid_number(id_text, self.name, 4))}
