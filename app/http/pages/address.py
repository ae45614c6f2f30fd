"""The address under which a reader reached this server, for the examples that a page gives to copy."""

import re
from dataclasses import dataclass

from starlette.requests import Request

_AUTHORITY = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]{0,252})|\[[0-9A-Fa-f:.]{2,45}\])(?::([0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class Address:
    """A host, in brackets if it is an IPv6 address, and the URL of the server there, without a slash at the end."""

    host: str
    url: str

    @property
    def bare_host(self) -> str:
        """The host without brackets."""
        return self.host.strip("[]")


def address_of(request: Request) -> Address:
    """The address in the Host header if it can be a host and a port, else the address of the socket.

    Anybody can send any Host header, and a reader runs the examples. So a host here holds only characters that mean
    nothing to a shell, to Python or to HTML.
    """
    scheme = request.url.scheme
    given = _AUTHORITY.fullmatch(request.headers.get("host", ""))
    if given is not None:
        return Address(given[1], f"{scheme}://{given[0]}")
    host, port = request.scope.get("server") or ("localhost", None)
    host = f"[{host}]" if ":" in host else host
    return Address(host, f"{scheme}://{host}" + ("" if port is None else f":{port}"))
