"""How fast the server is: `python -m bench` measures it beside what else there is, or beside another server."""


class CaseFailed(Exception):
    """A round gave no figure, or a program for it is not installed; says why."""
