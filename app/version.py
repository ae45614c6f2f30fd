"""The version of the ticket server."""

VERSION = "0.1.0"
