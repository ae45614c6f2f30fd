"""The benchmark: the ticket server beside what else one could use, on one machine, in one run.

    make bench                       everything, some fifteen minutes
    python -m bench --quick          every case once, a second each: does it all work here?
    python -m bench --only server-64 direct-stub-64 yardstick-fastapi

The way of a run: `cases` lists what is measured, each case is a function of the `stage`, which starts what it needs
when it is first asked for it. `runner` goes through the list round after round (A B A B ..., so that whatever the
machine does meanwhile hits all of them), `summary` makes medians of the rounds, `claims` compares them, `report` and
`plot` write them down. `trust` says whether the machine did something else meanwhile; `publication` puts the figures of
a run that can be trusted into docs/performance.md and README.md.

`capacity` measures what a ticket, a connection and a crash cost, for docs/capacity.md.

What asks: `wrk` for HTTP throughput, so that the load costs next to nothing; a loop of our own over raw sockets
(`loop`) where databases are asked directly, or where latencies are compared: the same loop then stands on both sides,
and no driver's overhead is measured.
"""
