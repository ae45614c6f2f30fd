"""A FastAPI application that answers each request with the same ticket: what the framework alone can do."""

from fastapi import FastAPI

TICKET: dict[str, str | int] = {"sequence": "photos", "id": 1234567, "id_str": "1234567"}

app = FastAPI()


@app.get("/")
async def constant() -> dict[str, str | int]:
    """Return the ticket."""
    return TICKET
