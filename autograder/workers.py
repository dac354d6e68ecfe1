"""How processes that judge come to be: forked from one that has imported what they need.

Nothing heavy is imported here, so that `prepare` can be called before everything else: while this
process imports nbgrader, the other one imports torch and the judge.
"""

from __future__ import annotations

import multiprocessing
import sys
from multiprocessing.context import BaseContext

# jsonschema would build the grammar of international web addresses from it, which takes over a
# second in each process, to check a format that no notebook has. Without it, it leaves that out.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]


def context() -> BaseContext:
    """The way to start them. This process itself has threads and the gradebook, so it can't fork"""
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(["autograder.workers", "autograder.grading.batch"])
    return found


def prepare() -> None:
    """Begin importing; returns at once."""
    if sys.platform == "linux":
        from multiprocessing import forkserver

        context()
        forkserver.ensure_running()
