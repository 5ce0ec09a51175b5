"""One contract for every store, and what is SQLite alone."""
