"""Deterministic simulation: many workers in one thread, a virtual clock, seeded faults, and a checker of guarantees."""
