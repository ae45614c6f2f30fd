"""What `make test` has no time for: schedules of the model by the thousand, minutes of torture, a soak.

    plan      the parts of it, each as commands of its own
    soak      steady load without a fault: nothing grows, nothing slows down, nothing fails

`make long`, or `python -m tests.long`. Prints a table for the README, with the date; ends with 1 if any part failed.
"""
