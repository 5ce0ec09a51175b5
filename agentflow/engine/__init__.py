"""How a workflow moves: pure functions from a run and an event to a run and commands. Start in `advance.py`."""
