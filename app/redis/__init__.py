"""The Redis protocol: any Redis client draws tickets with INCR."""
