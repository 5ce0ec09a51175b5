"""`python -m agentflow` is the command `agentflow`."""

from agentflow.cli import main

main()
