"""The tests: all of them run in `.ci/run`, on every real database server that it finds."""
