"""The Redis protocol: any Redis client draws tickets with INCR.

`door` listens, `connection` is one client, `parser` makes commands of bytes, `commands` and `tickets` answer them.
"""
