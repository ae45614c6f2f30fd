"""The status page, which an operator reads in a browser."""
