"""The pages that programs write."""
