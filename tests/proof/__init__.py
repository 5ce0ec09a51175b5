"""Slow evidence: kills and restarts."""
