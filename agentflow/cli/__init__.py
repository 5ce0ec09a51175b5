"""The command line: the same verbs as the library, for operators, approvers and CI."""

from agentflow.cli.commands import main

__all__ = ["main"]
