"""Imports once what every kernel would import. Nothing here may start a thread before the fork."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil


def up() -> None:
    # Not matplotlib_inline: it looks for IPython's shell when it is imported.
    import ipywidgets  # noqa: F401
    import matplotlib.backends.backend_agg  # noqa: F401
    import matplotlib.pyplot  # noqa: F401

    import visuals
    from autograder.grading.sandbox.inside import guard  # noqa: F401

    for module in pkgutil.iter_modules(visuals.__path__):
        with contextlib.suppress(ImportError):
            importlib.import_module(f"visuals.{module.name}")
