"""What operators see: counts, metrics, the report behind /healthz and the pages, the access log, traces."""
