"""What the HTML pages share: escaping, the style sheet, and headers that let a browser run our own lines alone."""

import base64
import hashlib
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files

__all__ = ["Asset", "Page", "asset", "escape", "page"]

_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath fill='%233b82f6' "
    "d='M2 3h12v3a2 2 0 0 0 0 4v3H2v-3a2 2 0 0 0 0-4z'/%3E%3C/svg%3E"
)


@dataclass(frozen=True)
class Asset:
    """A style sheet or script that stands inside the page, and the hash by which the browser knows it."""

    text: str
    hash: str


def asset(name: str) -> Asset:
    """A file of app/http/static."""
    text = files("app.http").joinpath("static", name).read_text(encoding="utf-8")
    return Asset(text, "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'")


@dataclass(frozen=True)
class Page:
    """HTML and its headers."""

    html: str
    headers: dict[str, str] = field(default_factory=dict)


_STYLE = asset("page.css")


def page(title: str, body: str, script: Asset, *, head: str = "", forms: str = "'none'") -> Page:
    """A whole page around `body`. `title` is escaped here, `body` and `head` by whoever made them. `forms`: where they
    may go, in the words of a content security policy."""
    html = (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<link rel="icon" href="{_ICON}">\n'
        f"<style>{_STYLE.text}</style>\n{head}</head>\n<body>\n{body}\n<script>{script.text}</script>\n</body>\n</html>\n"
    )
    policy = (
        f"default-src 'none'; style-src {_STYLE.hash}; script-src {script.hash}; connect-src 'self'; img-src data:; "
        f"base-uri 'none'; form-action {forms}; frame-ancestors 'none'"
    )
    headers = {
        "content-security-policy": policy,
        "cache-control": "no-store",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }
    return Page(html, headers)
