"""A clock of how much time has passed, which goes on while the machine is suspended."""

import time

_GOES_ON = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_seconds() -> float:
    """Seconds since some moment in the past. It never goes back; where the system has no clock that goes on while the
    machine is suspended, it is the monotonic one."""
    return time.clock_gettime(_GOES_ON)
