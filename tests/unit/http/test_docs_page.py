"""The page of /docs: no text of the API's description becomes part of its HTML."""

from typing import Any

from app.http.pages.docs_page import render

HTML = """<script>alert('x')</script> "quoted" & more"""


def document(text: str) -> dict[str, Any]:
    """An OpenAPI document with this text wherever one can stand."""
    return {
        "info": {"title": text, "version": text, "description": f"`{text}`"},
        "tags": [{"name": text, "description": text}],
        "components": {"schemas": {"Body": {"properties": {text: {"description": text}}, "examples": [{"key": text}]}}},
        "paths": {
            f"/{text}": {
                "put": {
                    "tags": [text],
                    "summary": text,
                    "description": text,
                    "parameters": [
                        {"name": text, "in": "query", "description": text, "required": True, "example": text}
                    ],
                    "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Body"}}}},
                    "responses": {
                        "200": {"description": text, "content": {"text/plain": {"example": text}}},
                        "422": {"description": text, "content": {"application/json": {"example": {"detail": text}}}},
                    },
                }
            }
        },
    }


def test_no_text_becomes_part_of_the_page() -> None:
    plain = render(document("nothing"), "http://tickets").html
    text = render(document(HTML), f"http://tickets/{HTML}").html
    assert text.count("<") == plain.count("<")
    assert text.count("&lt;script&gt;") >= 15
    assert ' "quoted" & more' not in text
