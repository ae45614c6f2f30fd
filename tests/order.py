"""Which files go first in a run: those that take longest, so that no process of several is left alone with one."""

from pathlib import PurePath

LONGEST_FIRST = (
    "tests/system/test_growth.py",
    "tests/system/test_runbooks.py",
    "tests/system/test_never_twice.py",
    "tests/system/test_failover.py",
    "tests/system/test_kinds_and_clocks.py",
    "tests/model/test_model.py",
    "tests/deploy/test_alerts.py",
    "tests/system/test_new_connections.py",
    "tests/system/test_ring_record.py",
    "tests/system/test_doctor.py",
    "tests/system/test_lifecycle.py",
    "tests/unit/tickets/sources/test_worker_lease.py",
    "tests/contract/test_kinds.py",
    "tests/system/test_reserve.py",
    "client/tests/test_sqlalchemy.py",
    "tests/deploy/test_bad_day.py",
    "tests/system/test_http_limits.py",
    "tests/system/test_status_page.py",
    "tests/unit/http/test_http_bounds.py",
    "tests/unit/tickets/sequences/test_many_sequences.py",
    "client/tests/test_sqlalchemy_async.py",
    "tests/contract/test_sequences.py",
    "tests/system/test_crashes.py",
    "tests/unit/databases/test_mysql_bounds.py",
    "tests/system/test_strangers.py",
    "tests/deploy/test_redis_front.py",
    "tests/unit/http/test_connection_ends.py",
)
"""The files that took 20 s or more on two processors, as `--durations=0` had them. Only how fast a run ends depends on
it: one that is not in its place, or not here at all, is run just the same."""
_FOLDERS = ("containers", "model", "deploy", "system", "contract", "unit")
"""In this order go the folders of those that are not named; first of all what is in containers."""


def turn(file: PurePath) -> tuple[int, int, int]:
    """The place of this file, relative to the repository, in the order of a run: to sort by."""
    folder = file.parts[1]
    named = LONGEST_FIRST.index(str(file)) if str(file) in LONGEST_FIRST else len(LONGEST_FIRST)
    return folder != "containers", named, _FOLDERS.index(folder) if folder in _FOLDERS else 0
