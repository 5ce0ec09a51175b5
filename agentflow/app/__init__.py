"""The `App`: the one object that a program holds, and its verbs."""

from agentflow.app.app import App

__all__ = ["App"]
