"""The token of a mark: `<epoch>:<nonce>`. It says under which epoch a lane draws.

An epoch is the incarnation of a database together with the creation of its table: while it lasts, the table cannot have
gone back unseen. A server that advances a sequence supersedes the token. From then on a mark under the old token is
refused.
"""

import secrets

_UNVERIFIED = "u-"


def new_token(epoch: str, *, verified: bool) -> str:
    """A new token. `verified`: whether every database of the ring was asked for its marks. An unverified token does not
    prove that its epoch began above everything issued before."""
    return f"{epoch}:{'' if verified else _UNVERIFIED}{secrets.token_hex(4)}"


def epoch_of(token: str) -> str:
    """The epoch that a token was made under."""
    return token.rpartition(":")[0]


def is_verified(token: str) -> bool:
    """Whether every database of the ring had been asked for its marks when the token was made."""
    return not token.rpartition(":")[2].startswith(_UNVERIFIED)
