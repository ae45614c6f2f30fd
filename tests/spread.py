"""Which tests share a process of a run in several: those of a file, for they share fixtures, and all in containers,
for these take long to make."""

import re

from xdist.scheduler import LoadFileScheduling

_IN_CONTAINERS = re.compile(r"^tests/containers/|\[containers\b")


class ByFile(LoadFileScheduling):  # type: ignore[misc]
    """Gives out the tests a file at a time, and those in containers as if they were one file."""

    def _split_scope(self, nodeid: str) -> str:
        return "containers" if _IN_CONTAINERS.search(nodeid) else str(super()._split_scope(nodeid))
