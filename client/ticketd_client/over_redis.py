"""A ticket server over the Redis protocol, with redis-py."""

from __future__ import annotations

import time
from typing import Any

from ticketd_client import answers
from ticketd_client.answers import AttemptFailed, Block, Ticket
from ticketd_client.errors import (
    Answer,
    InvalidRequest,
    NoSuchSequence,
    NotAllowed,
    SequenceConflict,
    SequenceExhausted,
    TicketError,
)
from ticketd_client.servers import Server

try:
    from redis import Redis, exceptions
    from redis.backoff import NoBackoff
    from redis.connection import ConnectionPool
    from redis.retry import Retry
except ImportError as missing:
    raise InvalidRequest("redis:// URLs take redis-py: pip install 'ticketd-client[redis]'") from missing

REFUSALS: dict[str, type[TicketError]] = {
    "NOAUTH": NotAllowed,
    "WRONGPASS": NotAllowed,
    "NOPERM": NotAllowed,
    "EXHAUSTED": SequenceExhausted,
    "no such sequence": NoSuchSequence,
}
"""What an error begins with that every server would give; redis-py takes the word ERR away."""
NOT_NOW = "max number of clients", "unknown command"
"""Another server may do better; the second is no ticket server."""


class RedisServer(Server):
    """See Server. `attempt` in seconds: redis-py's timeouts are a connection's and begin anew with every byte."""

    keeps_deadlines = False

    def __init__(self, url: str, host: str, port: int, *, token: str | None, attempt: float) -> None:
        self.url = url
        self.token = token
        self._closed = False
        self._options: dict[str, Any] = {
            "host": host,
            "port": port,
            "password": token,
            "socket_timeout": attempt,
            "socket_connect_timeout": attempt,
            "protocol": 2,  # no HELLO: a connection is open, and authorised, a round trip earlier
            "retry": Retry(NoBackoff(), 0),
        }
        self._redis = self._made()

    def _made(self) -> Any:  # redis-py's own types leave execute_command out
        return Redis(connection_pool=ConnectionPool(**self._options))

    def take(self, sequence: str, count: int | None, key: int | None, deadline: float) -> list[Ticket]:
        """See Server."""
        if count is None and key is None:
            found = self._ask(deadline, "INCR", sequence)
            texts = [found]
        else:
            words = ["TICKET.TAKE", sequence, "COUNT", count or 1]
            found = self._ask(deadline, *words, *(() if key is None else ("KEY", key)))
            if not isinstance(found, list):
                raise AttemptFailed(f"did not answer with {count or 1} tickets")
            texts = found
        ids = [_ticket(each) for each in texts]
        return answers.tickets_of(ids, [str(each) for each in ids], count or 1)

    def take_block(self, sequence: str, size: int, deadline: float) -> Block:
        """See Server."""
        otherwise = InvalidRequest if size > 1 else SequenceConflict  # a block of one is never too large
        found = self._ask(deadline, "TICKET.BLOCK", sequence, size, otherwise=otherwise)
        if not isinstance(found, list) or len(found) != 3:
            raise AttemptFailed("did not answer with a block")
        return answers.block_of(found[0], found[1], found[2], size)

    def bump(self, sequence: str, above: int, force: bool, deadline: float) -> dict[str, object]:
        """See Server."""
        raise AttemptFailed("cannot advance a sequence: that takes an http:// URL")

    def look(self, deadline: float) -> None:
        """See Server."""
        self._ask(deadline, "PING")

    def forget_connections(self) -> None:
        """See Server. redis-py's pool sees by the process's id that they are the parent's, but waits then for a lock
        that one of the parent's threads may have held; a new pool has a new one."""
        self._parents = self._redis  # closed by nobody here: its locks may be held
        self._redis = self._made()

    def close(self) -> None:
        """See Server."""
        self._closed = True
        self._redis.connection_pool.disconnect(inuse_connections=False)

    def _ask(self, deadline: float, *words: object, otherwise: type[TicketError] = InvalidRequest) -> Any:
        """What it answers. `otherwise`: what an error is that has no name of its own."""
        began = time.monotonic()
        if began >= deadline:
            raise AttemptFailed("no answer in 0.0 s")
        try:
            return self._redis.execute_command(*words)
        except (exceptions.AuthenticationError, exceptions.AuthorizationError, exceptions.NoPermissionError) as error:
            raise self._refusal(NotAllowed, error) from None
        except exceptions.TimeoutError:
            raise AttemptFailed(f"no answer in {time.monotonic() - began:.1f} s") from None
        except (exceptions.ConnectionError, OSError) as error:
            raise AttemptFailed(f"no answer ({self._says(error)})") from None
        except exceptions.ResponseError as error:
            raise self._error_of(error, otherwise) from None
        except exceptions.RedisError as error:
            raise AttemptFailed(self._says(error)) from None
        finally:
            if self._closed:
                self.close()

    def _error_of(self, error: Exception, otherwise: type[TicketError]) -> Exception:
        text = str(error)
        if isinstance(error, exceptions.TryAgainError):
            return AttemptFailed(f"TRYAGAIN {self._says(error)}", retry_after=1.0)  # as over HTTP
        if text.startswith(NOT_NOW):
            return AttemptFailed(self._says(error))
        kind = next((kind for begins, kind in REFUSALS.items() if text.startswith(begins)), otherwise)
        return self._refusal(SequenceConflict if "no blocks" in text else kind, error)

    def _refusal(self, kind: type[TicketError], error: Exception) -> TicketError:
        says = self._says(error)
        return kind(f"{self.url}: {says}", [Answer(self.url, says)])

    def _says(self, error: Exception) -> str:
        return self.hide(answers.shown(str(error)) or type(error).__name__)


def _ticket(value: object) -> object:
    """An integer, or a bulk string: a number of up to 19 digits, or an id of more than 63 bits."""
    if isinstance(value, bytes):
        text = value.decode("latin-1")
        return int(text) if len(text) <= 19 and text.isascii() and text.isdigit() and str(int(text)) == text else text
    return value
