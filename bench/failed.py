"""Why a case has no figure."""


class CaseFailed(Exception):
    """A round gave no figure; says why."""


class Missing(Exception):
    """A program is not installed; says how to install it."""
