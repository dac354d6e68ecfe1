"""Imports once what every kernel would import. Nothing here may start a thread before the fork."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import sys

# What ipykernel and IPython import only when a kernel starts, or a cell needs it.
LATE = (
    "IPython.core.completerlib",
    "IPython.core.debugger",
    "IPython.core.oinspect",
    "IPython.extensions.storemagic",
    "faulthandler",
    "ipykernel.debugger",
    "ipywidgets",
    "matplotlib.backends.backend_agg",
    # Not matplotlib_inline: it looks for IPython's shell when it is imported.
    "matplotlib.pyplot",
    "pdb",
    "pydoc",
    "tornado.platform.asyncio",
    "torch.fx.experimental.symbolic_shapes",  # at the first backward pass, and sympy with it
    "autograder.grading.sandbox.inside.guard",
)


def up() -> None:
    """Import all that, and the pictures of the course."""
    sys.modules["debugpy"] = None  # type: ignore[assignment]  # nobody debugs here, and it is slow
    import visuals

    pictures = [f"visuals.{module.name}" for module in pkgutil.iter_modules(visuals.__path__)]
    for name in (*LATE, *pictures):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    del sys.modules["debugpy"]
