"""Torture: several ticket servers under load while everything around them fails at random, one thing after the other.

    stage         two ticket databases or three, three ticket servers, a proxy on each way from a server to a database
    faults        what can be done to them, each by its name
    ring_faults   what can be done to the ring: growth, every mistake with it, witnesses that are away
    run           the load, the schedule, the verdict and the figures

`make torture`, or `python -m tests.torture`: TORTURE_SECONDS (120) long, on TORTURE_DATABASES (2) databases, with the
seed TORTURE_SEED (printed; a random one, if not given). Ends with 1 if any promise was broken.

Every schedule is one in which no ticket may come twice: only one database goes back at a time, what it drew is marked
on another that is well and can be read when it returns. Where that one is away, the servers run with
TICKETS_UNVERIFIED=refuse. So no duplicate is ever excused.
"""
