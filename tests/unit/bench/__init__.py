"""What becomes of the figures of a benchmark."""
