"""Where runs live: one protocol, and its implementations in memory and on SQLite."""
