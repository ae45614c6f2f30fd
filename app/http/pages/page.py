"""The parts that all HTML pages share: templates, style sheet, and headers that let a browser run our script only."""

import base64
import hashlib
from dataclasses import dataclass, field
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from app.http.pages.formats import FILTERS

_ENVIRONMENT = Environment(
    loader=PackageLoader("app.http.pages"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    auto_reload=False,
)
_ENVIRONMENT.filters.update(FILTERS)


@dataclass(frozen=True)
class Asset:
    """A style sheet or script that stands inside the page, and the hash by which the browser knows it."""

    text: Markup
    hash: str


def asset(name: str) -> Asset:
    """A file of app/http/pages/static."""
    text = files("app.http.pages").joinpath("static", name).read_text(encoding="utf-8")
    return Asset(Markup(text), "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'")


@dataclass(frozen=True)
class Page:
    """HTML and its headers."""

    html: str
    headers: dict[str, str] = field(default_factory=dict)


_STYLE = asset("page.css")


def render(template: str, **values: object) -> Markup:
    """HTML from a file of app/http/pages/templates, with everything escaped that is not Markup."""
    return Markup(_ENVIRONMENT.get_template(template).render(values))


def page(template: str, script: Asset, *, forms: str = "'none'", **values: object) -> Page:
    """A whole page. `forms`: where its forms may be sent to, as a source of a content security policy."""
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
    return Page(render(template, style=_STYLE.text, script=script.text, **values), headers)
