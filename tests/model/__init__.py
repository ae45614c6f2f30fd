"""The model: ticket servers and ticket databases without I/O, under every fault, by a random schedule."""
