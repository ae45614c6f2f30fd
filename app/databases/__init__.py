"""The ticket databases: the protocol they all speak, and one module per engine."""
