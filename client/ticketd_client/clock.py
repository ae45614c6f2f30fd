"""A clock of how much time has passed. It goes on while the machine is suspended: a ticket grows older then, too."""

from __future__ import annotations

import sys
import time
from functools import partial

if sys.platform == "win32":
    passed = time.monotonic
else:
    passed = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
    """Seconds since some moment in the past. It never goes back."""
