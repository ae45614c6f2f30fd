"""A clock of how much time has passed. It goes on while the machine is suspended: a ticket grows older then, too."""

import time
from functools import partial

passed = partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
"""Seconds since some moment in the past. It never goes back."""
