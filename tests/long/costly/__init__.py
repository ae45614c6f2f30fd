"""The search for the most expensive byte: inputs of both protocols that make everybody else wait, or make the server
grow. `python -m tests.long.costly` searches; `make test` runs the worst inputs that were found (`corpus`)."""
