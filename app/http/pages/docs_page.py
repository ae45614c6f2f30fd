"""/docs: the OpenAPI document as a page, with a curl line for everything and a button that tries it. Works offline."""

import json
import re
import shlex
from dataclasses import dataclass
from typing import Any, NamedTuple

from app.http.pages.page import Page, asset, page

_SCRIPT = asset("docs.js")


def render(document: dict[str, Any], base_url: str) -> Page:
    """The page; its curl lines speak to `base_url`."""
    sections = [
        {"name": tag["name"], "description": tag["description"], "operations": _operations(document, tag["name"])}
        for tag in document["tags"]
    ]
    return page(
        "docs.html",
        _SCRIPT,
        info=document["info"],
        has_tokens="securitySchemes" in document["components"],
        sections=sections,
        base_url=base_url,
    )


class _Answer(NamedTuple):
    """A possible answer of an operation. `examples`: the media type and the text of each."""

    description: str
    examples: list[tuple[str, str]]


@dataclass(frozen=True)
class _Operation:
    """One method of one path: its part of the OpenAPI document, and the model of its body (empty where it has none)."""

    method: str
    path: str
    described: dict[str, Any]
    body: dict[str, Any]

    @property
    def is_open(self) -> bool:
        """Whether it is unfolded from the start: the first one is."""
        return self.method == "get" and self.path.startswith("/ticket/")

    @property
    def summary(self) -> str:
        return str(self.described["summary"])

    @property
    def description(self) -> str:
        return str(self.described.get("description", ""))

    @property
    def needs_token(self) -> bool:
        return "security" in self.described

    @property
    def parameters(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.described.get("parameters", [])
        return found

    @property
    def takes(self) -> list[tuple[str, str]]:
        """Each parameter and field of the body, and what it means."""
        in_url = [
            (each["name"], f"in the {each['in']}; {each['description']}{'' if each.get('required') else ' (optional)'}")
            for each in self.parameters
        ]
        in_body = [
            (name, f"in the body; {field.get('description', '')}")
            for name, field in self.body.get("properties", {}).items()
        ]
        return in_url + in_body

    @property
    def answers(self) -> dict[str, _Answer]:
        """By status."""
        return {
            status: _Answer(answer["description"], _examples(answer))
            for status, answer in self.described["responses"].items()
        }

    @property
    def body_examples(self) -> list[str]:
        """Of bodies that it takes; the first is what the shell's lines send."""
        return [json.dumps(each) for each in self.body["examples"]] if self.body else []

    @property
    def body_example(self) -> str | None:
        return self.body_examples[0] if self.body else None

    def curl_lines(self, base_url: str) -> list[str]:
        """With what has to be given, then with everything that has an example, then for text."""
        examples = {each["name"]: str(each["example"]) for each in self.parameters if "example" in each}
        url = base_url + re.sub(r"\{(\w+)\}", lambda found: examples[found[1]], self.path)
        in_query = [each for each in self.parameters if each["in"] == "query" and "example" in each]
        everything = _query({each["name"]: examples[each["name"]] for each in in_query})
        needed = _query({each["name"]: examples[each["name"]] for each in in_query if each.get("required")})
        options = [] if self.method == "get" else ["-X", self.method.upper()]
        if self.needs_token:
            options += ["-H", "Authorization: Bearer TOKEN"]
        if self.body_example is not None:
            options += ["-H", "Content-Type: application/json", "-d", self.body_example]
        lines = [[*options, url + needed]]
        if everything != needed:
            lines.append([*options, url + everything])
        if in_query and "text/plain" in self.described["responses"]["200"]["content"]:
            lines.append([*options, "-H", "Accept: text/plain", url + everything])
        return [shlex.join(["curl", *line]) for line in lines]


def _operations(document: dict[str, Any], tag: str) -> list[_Operation]:
    return [
        _Operation(method, path, operation, _body_model(document, operation))
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if tag in operation["tags"]
    ]


def _body_model(document: dict[str, Any], operation: dict[str, Any]) -> dict[str, Any]:
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    choices = [schema, *schema.get("anyOf", ())]
    name = next((each["$ref"].rpartition("/")[2] for each in choices if "$ref" in each), None)
    model: dict[str, Any] = document["components"]["schemas"][name] if name else {}
    return model


def _examples(answer: dict[str, Any]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for media_type, content in answer.get("content", {}).items():
        values = [each["value"] for each in content.get("examples", {}).values()]
        values += [content["example"]] if "example" in content else []
        found += [(media_type, each if isinstance(each, str) else _json(each)) for each in values]
    return found


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _query(values: dict[str, str]) -> str:
    return "?" + "&".join(f"{name}={value}" for name, value in values.items()) if values else ""
