"""The version of the ticket server."""

VERSION = "0.3.0"
