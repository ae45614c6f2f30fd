"""Tests that need no server and run in seconds."""
