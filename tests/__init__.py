"""Tests of the ticket server: `unit` without I/O, `system` on real servers, `harness` what they stand on."""
