"""The programs that an operator runs beside the server: each file is checked by its own tool, and HAProxy is tried."""
