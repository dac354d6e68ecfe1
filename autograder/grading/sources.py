"""Where a process that grades gets its kernels. Nothing of nbgrader is imported here.

So the warm process of a lesson can be started before that, and both import at the same time.
"""

from __future__ import annotations

import atexit
import shutil
from functools import cache
from pathlib import Path

from autograder.course import CourseError, Lesson
from autograder.grading.sandbox import KernelSource, Limits, check_sandbox

_folders: list[Path] = []


def new_source(lesson: Lesson, sandbox: str) -> KernelSource:
    """A source of kernels for a lesson; it is to be closed.

    `sandbox` is "none", "bwrap" or "auto": both are bwrap, or a CourseError that says what to do.
    """
    return KernelSource(lesson, "none" if sandbox == "none" else "bwrap", Limits())


@cache
def kernel_source(lesson: Lesson, sandbox: str) -> KernelSource:
    """This process's own source of kernels for a lesson; closed when the process ends."""
    source = new_source(lesson, sandbox)
    atexit.register(source.close)
    _folders.append(source.folder)
    return source


def remove_folders() -> None:
    """Remove what this process's kernel sources left on the disk, before it ends without them."""
    for folder in _folders:
        shutil.rmtree(folder, ignore_errors=True)


def sandbox_works(sandbox: str) -> None:
    """CourseError where submissions can't run as asked."""
    if sandbox not in ("auto", "bwrap", "none"):
        raise CourseError(f"There is no sandbox {sandbox!r}; say auto, bwrap or none.")
    if sandbox != "none":
        check_sandbox()
