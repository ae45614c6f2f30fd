"""The ticket server, written again: the package that takes the place of `app/` when it is complete."""
