"""Stores for runners: those of the scenarios."""

from tests.scenarios.conftest import store

__all__ = ["store"]
