"""What authors use offline: no model, no clock, no database.

`play` runs a workflow by a script, `Clock` lets days pass, `ScriptedModel` answers at HTTP level, below the client that
the engine really builds.
"""

from agentflow.testing.clock import Clock
from agentflow.testing.paths import paths
from agentflow.testing.play import Played, play
from agentflow.testing.script import Line, ScriptError, expires, fails, says

__all__ = ["Clock", "Line", "Played", "ScriptError", "expires", "fails", "paths", "play", "says"]
