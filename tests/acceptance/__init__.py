"""Real input through the shipped workflows, against an oracle."""
