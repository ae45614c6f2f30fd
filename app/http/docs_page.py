"""/docs: the OpenAPI document as a page, with a curl line for everything and a button that tries it. Works offline."""

import json
import re
import shlex
from dataclasses import dataclass
from typing import Any

from app.http.pages import Page, asset, escape, page

_SCRIPT = asset("docs.js")


def render(document: dict[str, Any], base_url: str) -> Page:
    """The page; its curl lines speak to `base_url`."""
    info = document["info"]
    sections = []
    for tag in document["tags"]:
        operations = [
            _Operation(method, path, operation, _body_model(document, operation)).html(base_url)
            for path, operations in document["paths"].items()
            for method, operation in operations.items()
            if tag["name"] in operation["tags"]
        ]
        head = f'<h2>{escape(tag["name"])} <span class="soft">{_prose(tag["description"])}</span></h2>'
        sections.append(f"<section>{head}{''.join(operations)}</section>")
    field = (
        '<p class="tries"><label>a bearer token, for what you try here<input id="token" type="password"></label></p>'
    )
    body = (
        '<header id="head"><h1><span class="ticket" aria-hidden="true"></span>'
        f'{escape(info["title"])}</h1><p class="server soft">version {escape(info["version"])}</p></header>'
        f'<p class="lead">{_prose(info["description"])}</p>'
        f"{field if 'securitySchemes' in document['components'] else ''}"
        f"<main>{''.join(sections)}</main>"
        '<footer><span></span><nav><a href="/">status</a> <a href="/openapi.json">openapi.json</a></nav></footer>'
    )
    return page(f"{info['title']}: API", body, _SCRIPT)


@dataclass(frozen=True)
class _Operation:
    """One method of one path: its part of the OpenAPI document, and the model of its body (empty where it has none)."""

    method: str
    path: str
    described: dict[str, Any]
    body: dict[str, Any]

    @property
    def parameters(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.described.get("parameters", [])
        return found

    def html(self, base_url: str) -> str:
        described = self.described
        is_first = self.method == "get" and self.path.startswith("/ticket/")
        about = f"<p>{_prose(described['description'])}</p>" if "description" in described else ""
        if "security" in described:
            about += '<p class="soft">Wants a bearer token.</p>'
        return (
            f'<details class="operation"{" open" if is_first else ""}><summary>'
            f'<span class="method {escape(self.method)}">{escape(self.method.upper())}</span>'
            f'<span class="path">{escape(self.path)}</span> <span class="soft">{escape(described["summary"])}</span>'
            f"</summary><div>{about}{self._takes()}"
            f"<h4>From a shell</h4><pre>{escape(chr(10).join(self.curl_lines(base_url)))}</pre>"
            f"{self._form()}{self._answers()}</div></details>"
        )

    def _takes(self) -> str:
        rows = [
            (each["name"], f"in the {each['in']}; {each['description']}{'' if each.get('required') else ' (optional)'}")
            for each in self.parameters
        ]
        rows += [
            (name, f"in the body; {field.get('description', '')}")
            for name, field in self.body.get("properties", {}).items()
        ]
        return _table("Takes", [(name, _prose(text)) for name, text in rows])

    def _answers(self) -> str:
        return _table(
            "Answers",
            [
                (status, _prose(answer["description"]) + "".join(_examples(answer)))
                for status, answer in self.described["responses"].items()
            ],
        )

    @property
    def _body_example(self) -> str | None:
        return json.dumps(self.body["examples"][0]) if self.body else None

    def curl_lines(self, base_url: str) -> list[str]:
        """With what has to be given, then with everything, then for text."""
        examples = {each["name"]: str(each.get("example", each["name"])) for each in self.parameters}
        url = base_url + re.sub(r"\{(\w+)\}", lambda found: examples[found[1]], self.path)
        in_query = [each for each in self.parameters if each["in"] == "query"]
        everything = _query({each["name"]: examples[each["name"]] for each in in_query})
        needed = _query({each["name"]: examples[each["name"]] for each in in_query if each.get("required")})
        options = [] if self.method == "get" else ["-X", self.method.upper()]
        if "security" in self.described:
            options += ["-H", "Authorization: Bearer TOKEN"]
        if self._body_example is not None:
            options += ["-H", "Content-Type: application/json", "-d", self._body_example]
        lines = [[*options, url + needed]]
        if everything != needed:
            lines.append([*options, url + everything])
        if in_query and "text/plain" in self.described["responses"]["200"]["content"]:
            lines.append([*options, "-H", "Accept: text/plain", url + everything])
        return [shlex.join(["curl", *line]) for line in lines]

    def _form(self) -> str:
        inputs = "".join(
            f'<label>{escape(each["name"])}<input name="{escape(each["name"])}" data-in="{escape(each["in"])}" '
            f'value="{escape(str(each.get("example", "")) if each.get("required") else "")}"></label>'
            for each in self.parameters
        )
        if self._body_example is not None:
            inputs += f'<label>body<textarea data-in="body">{escape(self._body_example)}</textarea></label>'
        return (
            f'<form class="tries" data-method="{escape(self.method.upper())}" data-path="{escape(self.path)}">{inputs}'
            '<button>Try it</button></form><pre class="shown" hidden></pre>'
        )


def _body_model(document: dict[str, Any], operation: dict[str, Any]) -> dict[str, Any]:
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    choices = [schema, *schema.get("anyOf", ())]
    name = next((each["$ref"].rpartition("/")[2] for each in choices if "$ref" in each), None)
    model: dict[str, Any] = document["components"]["schemas"][name] if name else {}
    return model


def _examples(answer: dict[str, Any]) -> list[str]:
    found = []
    for media_type, content in answer.get("content", {}).items():
        values = [each["value"] for each in content.get("examples", {}).values()]
        if "example" in content:
            values.append(content["example"])
        for value in values:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            found.append(f'<pre><span class="soft">{escape(media_type)}</span>\n{escape(text)}</pre>')
    return found


def _query(values: dict[str, str]) -> str:
    return "?" + "&".join(f"{name}={value}" for name, value in values.items()) if values else ""


def _table(title: str, rows: list[tuple[str, str]]) -> str:
    if not rows:
        return ""
    cells = "".join(f"<tr><td><code>{escape(name)}</code></td><td>{text}</td></tr>" for name, text in rows)
    return f'<h4>{title}</h4><table class="fields">{cells}</table>'


def _prose(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
