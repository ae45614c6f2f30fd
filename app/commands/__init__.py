"""The command line `ticketd`: `remote` asks a running server, `program` has all else."""
