"""The status page, which an operator reads in a browser."""

from app.http.pages.status import add_pages

__all__ = ["add_pages"]
