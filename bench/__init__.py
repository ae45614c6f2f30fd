"""How fast the server is: `python -m bench` measures it beside what else there is, or beside another server."""
