"""Which node of a ticket database all servers draw from, where a database has several."""

from collections.abc import Iterable

from app.tickets.changes import Post
from app.tickets.heartbeats import Heartbeats

PATIENCE = 10.0
"""Seconds after which a node that another server uses is tried again."""


def choose_nodes(posts: Iterable[Post], heartbeats: Heartbeats, now: float) -> None:
    """Let this server turn to the node that others use: to an earlier one, or to any while it uses none itself.

    now: by the clock of the heartbeats. The next look tries the node, and goes on to the others where it fails.
    """
    for post in posts:
        member, used = post.member, set[str]()
        if member.node is None or now < post.tried + PATIENCE:
            continue
        for server in heartbeats.live(now):
            use = server.said.lives.get(member.offset) if server.said is not None else None
            used |= {use.node} if use is not None else set()
        if member.database.prefer(used, earlier=member.life is not None):
            post.tried = now
            post.wake.set()
