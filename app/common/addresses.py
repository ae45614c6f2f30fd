"""Network addresses."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens on `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
