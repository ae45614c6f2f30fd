"""What happens to ticket databases that run in containers, as they are deployed; wherever a Docker engine is."""
