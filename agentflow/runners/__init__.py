"""Who carries out what the engine commands: one process on asyncio, over any store."""
