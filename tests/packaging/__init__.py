"""Tests of the distributions that are built from this checkout."""
