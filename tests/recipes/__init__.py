"""The recipes of docs/recipes, run as they stand there."""
