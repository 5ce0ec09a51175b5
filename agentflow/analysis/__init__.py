"""What can be said about a workflow without running it: its problems, and its picture as text."""
