"""The names of settings in an environment: which one was meant by a misspelt name, and which names are not ours.

A misspelt setting must not leave its default in force: without its last letter, TICKETS_DATABASES would mean tickets
1, 2, 3 … of a fresh embedded pair, and TICKETS_TOKENS a server that asks for none. So `load` in `settings` refuses a
name that is one slip away from a setting.
"""

import re
from collections.abc import Iterable, Mapping

PREFIX = "TICKETS_"
FILE = "_FILE"
"""The end of a setting's name if the value is in a file."""
OTHERS = re.compile(
    r"TICKETS_(?:"
    r"(?:TEST|BENCH)_\w+"  # the tests and the benchmark
    r"|DATABASE_USER"  # docker-compose.yml
    r"|\d+(?:_REDIS)?|FRONT(?:_TLS|_REDIS|_REDIS_TLS)?|CERTIFICATE|PLAIN|PUBLIC_TLS_PORT|STATISTICS"  # haproxy.cfg
    r")"
)
"""The deployment's own names. They begin like a setting, and other programs read them."""

_SHORT_PREFIX = "TICKET_"
_COMMANDS_PREFIX = "TICKETD_"
"""The commands that ask a server over HTTP read these."""
_OF_A_SERVICE = re.compile(r".+_(?:SERVICE_HOST|SERVICE_PORT.*|PORT_\d+_(?:TCP|UDP|SCTP).*)")
_SERVICE_ADDRESS = ("tcp://", "udp://")


def is_service_address(value: str) -> bool:
    """Whether Kubernetes or Docker set a variable to this value, for a service of the variable's name."""
    return value.startswith(_SERVICE_ADDRESS)


def unknown_names(environment: Mapping[str, str], settings: Iterable[str]) -> list[str]:
    """The sorted names that begin with the prefix and are not among `settings`, without those that are passed over."""
    known = _with_files(settings)
    return sorted(
        name
        for name, value in environment.items()
        if name.startswith(PREFIX) and name not in known and not _is_passed_over(name, value)
    )


def misspelt_name(environment: Mapping[str, str], settings: Iterable[str]) -> tuple[str, str] | None:
    """The first name, in alphabetical order, that nearly is one of `settings` or that with _FILE; and which one.

    "Nearly": apart from upper and lower case, the two names differ by the S of the prefix, or by one letter that is
    added, left out or changed, or by two neighbours that are swapped. None where there is no such name.
    """
    known = _with_files(settings)
    for name, value in sorted(environment.items()):
        if name in known or _is_passed_over(name, value):
            continue
        for meant in known:
            if _is_nearly(name.upper(), meant):
                return name, meant
    return None


def _with_files(settings: Iterable[str]) -> dict[str, None]:
    """The names and those of the files, in order."""
    return {name + ending: None for name in settings for ending in ("", FILE)}


def _is_passed_over(name: str, value: str) -> bool:
    upper = name.upper()
    return (
        upper.startswith(_COMMANDS_PREFIX)
        or OTHERS.fullmatch(name) is not None
        or _OF_A_SERVICE.fullmatch(upper) is not None
        or is_service_address(value)
    )


def _is_nearly(name: str, setting: str) -> bool:
    if name.startswith(_SHORT_PREFIX) and _is_one_slip(PREFIX + name.removeprefix(_SHORT_PREFIX), setting):
        return True
    return _is_one_slip(name, setting)


def _is_one_slip(name: str, setting: str) -> bool:
    """Whether the two are equal, or one letter added, left out, changed or swapped makes them so."""
    start = 0
    while start < min(len(name), len(setting)) and name[start] == setting[start]:
        start += 1
    here, there = name[start:], setting[start:]
    while here and there and here[-1] == there[-1]:
        here, there = here[:-1], there[:-1]
    return max(len(here), len(there)) <= 1 or (len(here) == 2 and here == there[::-1])
