"""Block by Block's judge: `check("layer_norm")` in a notebook, `evaluate(...)` in code."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autograder.devices import device
    from autograder.judge.evaluate import check, evaluate

__all__ = ["check", "device", "evaluate"]


def __getattr__(name: str) -> Any:
    # Lazy, so that the command line and the builder can import the package without torch.
    if name == "device":
        from autograder.devices import device

        return device
    if name in ("check", "evaluate"):
        from autograder.judge import evaluate as module

        return getattr(module, name)
    raise AttributeError(f"module 'autograder' has no attribute {name!r}")
