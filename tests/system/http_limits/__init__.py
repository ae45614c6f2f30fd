"""Bad input and bad clients over HTTP: a clear error or a closed connection, and service for everybody else."""
