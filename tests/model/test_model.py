"""Whole ticket servers under every fault in any order: no ticket twice, and tickets whenever there can be some.

Hypothesis chooses the seeds and prints the one that fails; the failure says what was done, step by step. The same few
are tried each time, so that a change is judged by itself. `make long` looks for new ones.
"""

from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.model.schedule import STEPS, Schedule

EXAMPLES = 30


@pytest.mark.timeout(300 + 3 * EXAMPLES)  # a quarter of a second each, where nothing else runs
def test_no_ticket_is_handed_out_twice_whatever_happens() -> None:
    done: Counter[str] = Counter()

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        deadline=None,
        phases=[Phase.explicit, Phase.reuse, Phase.generate],  # a smaller seed is not a simpler schedule
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    @given(seed=st.integers(0, 2**64 - 1))
    def schedules(seed: int) -> None:
        Schedule(seed, done).run(STEPS)

    schedules()
    print(", ".join(f"{kind}: {times}" for kind, times in done.most_common()))
