"""Torture: several ticket servers under load while everything around them fails at random, one thing after the other.

    stage     two ticket databases, three ticket servers, a proxy on each way from a server to a database
    faults    what can be done to them, each by its name
    run       the load, the schedule, the verdict and the figures

`make torture`, or `python -m tests.torture`: TORTURE_SECONDS (120) long, with the seed TORTURE_SEED (printed; a random
one, if not given). Ends with 1 if any promise was broken.
"""
