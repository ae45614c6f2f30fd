"""The tests that `make test` has no time for: schedules of the model by the thousand, minutes of torture, a soak.

    plan      the parts of it, each as commands of its own
    page      docs/evidence.md, which shows what came of a whole run
    soak      steady load without a fault: nothing grows, nothing slows down, nothing fails

`make long`, or `python -m tests.long`. Prints a table, and writes it to docs/evidence.md if the run was whole and no
part failed; ends with 1 if any part failed.
"""
