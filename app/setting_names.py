"""The names in an environment that look like settings.

A misspelt setting would leave its default in force: TICKETS_DATABASE for TICKETS_DATABASES would mean the tickets 1, 2,
3 … of a new embedded pair. So every name that looks like a setting and is none stops the start.
"""

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches

from app.errors import SettingsError

PREFIX, FILE = "TICKETS_", "_FILE"
_LIKE_A_SETTING = re.compile("TICKETS?_", re.IGNORECASE)
_OF_A_SERVICE = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT.*|PORT_\d+_(TCP|UDP|SCTP).*)", re.IGNORECASE | re.DOTALL)
_OF_THE_DEPLOYMENT = "TICKETS_DEPLOY_"


def variable(field: str) -> str:
    """Return the name of the variable for a field of the settings."""
    return PREFIX + field.upper()


def is_of_a_service(value: str) -> bool:
    """Whether Kubernetes or Docker made this value, for a variable that is named after a service."""
    return value.startswith(("tcp://", "udp://"))


def check_names(environment: Mapping[str, str], fields: Collection[str]) -> None:
    """Raise SettingsError for the first name that looks like a setting and is none; the error names the nearest one.

    fields: of the settings. Passed over are the names that Kubernetes and Docker make for a service, and those of the
    deployment itself, which begin with TICKETS_DEPLOY_.
    """
    known = {variable(field) + ending for field in fields for ending in ("", FILE)}
    for name, value in sorted(environment.items()):
        if name in known or not _LIKE_A_SETTING.match(name):
            continue
        if name.startswith(_OF_THE_DEPLOYMENT) or is_of_a_service(value) or _OF_A_SERVICE.fullmatch(name):
            continue
        meant = _LIKE_A_SETTING.sub(PREFIX, name, count=1).upper()
        (nearest,) = get_close_matches(meant, sorted(known), n=1, cutoff=0)
        raise SettingsError(f"{name}: there is no such setting; the nearest one is {nearest}: rename it, or unset it")
