"""The names in an environment that look like variables of this program.

A misspelt setting would leave its default in force: TICKETS_DATABASE for TICKETS_DATABASES would mean the tickets 1, 2,
3 … of a new embedded pair. So every name that looks like a setting and is none stops the start.
"""

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches

from app.errors import SettingsError

FILE = "_FILE"
SERVICE_VALUES = "tcp://", "udp://"
"""Kubernetes and Docker begin so the values of variables that they name after a service."""
_PASSED_OVER = re.compile(
    r"TICKETS_DEPLOY_.*|(?i:.*_(SERVICE_HOST|SERVICE_PORT.*|PORT_\d+_(TCP|UDP|SCTP).*))", re.DOTALL
)


def variable(field: str) -> str:
    """Return the name of the variable for a field of the settings."""
    return f"TICKETS_{field.upper()}"


def check_names(environment: Mapping[str, str], known: Collection[str], like: str = "TICKETS?_") -> None:
    """Raise SettingsError for the first name that looks like a known one and is none; the error has the nearest one.

    like: the pattern with which such names begin, in any case. Passed over are the names that Kubernetes and Docker
    make for a service, and those of the deployment itself, which begin with TICKETS_DEPLOY_.
    """
    for name, value in sorted(environment.items()):
        is_ours = name in known or not re.match(like, name, re.IGNORECASE)
        if not is_ours and not value.startswith(SERVICE_VALUES) and not _PASSED_OVER.fullmatch(name):
            (nearest,) = get_close_matches(name.upper(), sorted(known), n=1, cutoff=0)
            what = f"{name}: there is no such setting; the nearest one is {nearest}: rename it, or unset it"
            raise SettingsError(what)
