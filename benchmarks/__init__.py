"""How fast agentflow is beside raw SQLite, raw PostgreSQL and its peers: see README.md."""
