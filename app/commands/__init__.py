"""The command line `ticketd`: `remote` asks a running server, `local` needs none."""
