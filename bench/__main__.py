"""`python -m bench`."""

from bench.program import program

program()
