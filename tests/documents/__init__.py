"""That what README.md and docs/ say is true."""
