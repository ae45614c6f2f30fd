"""What `TicketDatabase` promises, asked of every storage engine alike."""
