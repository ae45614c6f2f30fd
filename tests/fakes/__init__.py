"""Stand-ins for what the domain talks to: ticket databases with real arithmetic, and a clock that nobody waits for."""
