"""How fast connections are accepted.

The event loop accepts one connection of each socket in each of its turns. Beside clients that use up the time of every
turn, that is two hundred a second; where more come, all others wait behind them in the socket's queue.
"""

import socket
from collections.abc import Sequence

AT_ONCE = 16
"""How many connections are accepted in one turn of the event loop. Each further one costs a system call for every new
connection."""


def accepting(sockets: Sequence[socket.socket]) -> list[socket.socket]:
    """Each of these listening sockets, AT_ONCE times: the same queue of connections under several numbers. The caller
    closes all of them."""
    return [*sockets, *(each.dup() for each in sockets for _ in range(AT_ONCE - 1))]
