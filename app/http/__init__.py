"""The HTTP door.

`fast` reads requests with uvicorn's parser and serves a plain GET for tickets or a block by itself, as `cycle` says. It
leaves every other request to the FastAPI application of `api`, which has `access` in front of it, and the models,
errors and pages beside it.
"""
