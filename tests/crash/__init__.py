"""Proofs with real processes and real databases: kills, faults, freezes, copies, clocks and races."""
