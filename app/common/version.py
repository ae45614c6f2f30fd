"""The version of the ticket server."""

VERSION = "0.2.0"
