"""The token of a mark: `<epoch>:<nonce>`. It says under which epoch marks are reserved, and by whom.

An epoch is the incarnation of a database together with the creation of its table: while it lasts, the table cannot have
gone back unseen. Whoever advances a sequence after a rewind supersedes the token, and a reservation under an older one
is refused.
"""

import secrets

_UNVERIFIED = "u-"


def new_token(epoch: str, *, verified: bool) -> str:
    """A new token. One that was made while a database of the ring could not be asked for its marks says so: it does not
    show that its epoch went on from where the one before it ended."""
    return f"{epoch}:{'' if verified else _UNVERIFIED}{secrets.token_hex(4)}"


def epoch_of(token: str) -> str:
    """The epoch that a token was made under."""
    return token.rpartition(":")[0]


def is_verified(token: str) -> bool:
    """Whether the token was made by somebody who had asked every database of the ring."""
    return not token.rpartition(":")[2].startswith(_UNVERIFIED)
