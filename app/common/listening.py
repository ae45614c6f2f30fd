"""Sockets that listen, made before anything else is started: a port in use stops the start and changes nothing."""

import contextlib
import errno
import socket
from collections.abc import Sequence

from app.common.errors import PortInUse, SettingsError

BACKLOG = 4096
"""Connections that the system accepts for a port before the server takes them."""


def listen(variable: str, host: str, port: int) -> list[socket.socket]:
    """Listen on `port` of every address of `host`. `variable`: the setting that names the port, for the errors.

    Returns one socket for each address. What connects waits until the event loop accepts it. Raises PortInUse where
    another program listens there, and SettingsError where this machine cannot listen there at all; it names the
    setting of the host where no port of that host could be used.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise _unusable_host(host, error.strerror or str(error)) from error
    except UnicodeError as error:  # a label that is empty, or longer than 63 characters
        raise _unusable_host(host, "it is not a host name") from error
    with contextlib.ExitStack() as on_error:
        try:
            made = [on_error.enter_context(_listening(family, address)) for family, _, _, _, address in found]
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise _unusable_host(host, error.strerror or str(error)) from error
            reason = f"{variable}: cannot listen on {host}:{port}: {error.strerror or error}"
            raise (PortInUse if error.errno == errno.EADDRINUSE else SettingsError)(reason) from error
        on_error.pop_all()
    return made


def _unusable_host(host: str, why: str) -> SettingsError:
    return SettingsError(f"TICKETS_HOST: {host!r} cannot be used ({why}); expected an address of this machine")


def _listening(family: int, address: tuple[object, ...]) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # else connections that have ended keep the port
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # IPv4 has a socket of its own
        made.bind(address)
        made.listen(BACKLOG)  # now: two servers may bind one port as long as neither listens
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made


def port_of(sockets: Sequence[socket.socket]) -> int:
    """The port on which they listen, which the system has chosen where 0 was asked for."""
    port: int = sockets[0].getsockname()[1]
    return port
