"""Scenarios: what went wrong elsewhere, tried here through the library, over memory and SQLite."""
