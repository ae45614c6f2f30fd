"""Albums and photos with tickets as primary keys."""
