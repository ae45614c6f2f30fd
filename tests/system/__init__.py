"""Tests of the real program on real servers; nothing here may import `app`."""
