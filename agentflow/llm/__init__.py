"""Asking language models: the client, the ladder of formats, the choice of an enum's member, prompts."""
