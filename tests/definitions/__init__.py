"""The shipped workflows and their services."""
