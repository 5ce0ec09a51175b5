"""What an App is made of fits together: its workflows have different names, and their states' models are there."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentflow.engine.machine import machine_of
from agentflow.errors import ConfigurationError
from agentflow.model.definition import Definition
from agentflow.model.values import Model
from agentflow.model.workflow import Workflow


def definitions_of(workflows: Sequence[Workflow[Any, Any]]) -> dict[tuple[str, int], Definition]:
    """The closed definitions by name and version. Raises `ConfigurationError` where two share both."""
    found: dict[tuple[str, int], Definition] = {}
    for workflow in workflows:
        key = (workflow.name, workflow.version)
        if key in found and found[key].workflow is not workflow:
            raise ConfigurationError(f"App([...]) has two workflows {workflow.name!r} of version {workflow.version}")
        found[key] = workflow.definition
        _ = workflow.definition.shape, workflow.definition.code  # worked out now, so that no first run pays for it
        machine_of(workflow.definition)
    return found


def check_models(definitions: Iterable[Definition], models: Mapping[str, Model]) -> None:
    """Raise `ConfigurationError` for a model that cannot be kept to, or that a state asks for and that is not there."""
    for alias, model in models.items():
        for option in ("requests_per_minute", "tokens_per_minute", "fallback"):
            if getattr(model, option) is not None:
                raise ConfigurationError(f"models[{alias!r}]: {option}= cannot be kept yet; leave it out")
    for definition in definitions:
        for state in definition.states.values():
            wanted = state.spec.model or (state.prompt.model if state.prompt else None)
            if wanted is not None and wanted not in models:
                known = ", ".join(sorted(models)) or "none"
                raise ConfigurationError(
                    f"workflow {definition.name!r}: state {state.name!r} asks the model {wanted!r}, "
                    f"which App(models={{...}}) does not have; known: {known}"
                )
