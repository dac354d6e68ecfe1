"""From a submitted file to its verdicts: read, put right, run in a kernel, judged outside it."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbformat.v4 import new_markdown_cell, new_notebook

from autograder.course import CourseError, Lesson
from autograder.grading.execute import execute, no_points
from autograder.grading.restore import release_cells, restore
from autograder.grading.sandbox import KernelSource, SharedKernels
from autograder.grading.submissions import Unreadable, load, read

# What goes wrong with a disk: no fault of a submission.
DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}


@dataclass(frozen=True)
class Judged:
    """A submission with its verdicts: the `notebook` as JSON, check cells with their outputs.

    `notes` and `flags` are sentences for the CSV; a flag asks the instructor to look. `scores`
    has points by exercise, `mistakes` the names of those that were recognised.
    """

    notebook: str
    notes: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    scores: dict[str, int] = field(default_factory=dict)
    mistakes: dict[str, list[str]] = field(default_factory=dict)


def judge_submission(path: Path, lesson: Lesson, source: KernelSource, seed: int) -> Judged:
    """Judge the notebook at `path`; whatever is wrong with it is in the result, never raised."""
    try:
        return judge_bytes(load(path, path.parent), lesson, source, seed)
    except Unreadable as error:
        return nothing(lesson, str(error))


def judge_bytes(
    data: bytes, lesson: Lesson, source: KernelSource | SharedKernels, seed: int
) -> Judged:
    """Judge a notebook that was read from a file already."""
    try:
        notebook, notes = read(data)
    except Unreadable as error:
        return nothing(lesson, str(error))
    notes += restore(notebook, release_cells(lesson))
    try:
        done = execute(notebook, lesson, source, seed)
    except CourseError:
        raise  # the sandbox itself does not work
    except Exception as error:
        if isinstance(error, OSError) and error.errno in DISK:
            raise  # this machine's fault, which would meet everyone after it too
        # Whatever a submission makes go wrong here is its own outcome and nobody else's.
        return nothing(lesson, f"It could not be judged ({type(error).__name__}: {error}).")
    return Judged(
        notebook=nbformat.writes(notebook),
        notes=notes,
        flags=done.stopped + done.notices,
        scores={name: report.score for name, report in done.reports.items()},
        mistakes=done.mistakes(),
    )


def nothing(lesson: Lesson, sentence: str) -> Judged:
    """The verdict on a submission that could not be judged: a zero everywhere, and why."""
    cell = new_markdown_cell(f"**Nothing was graded.** {sentence}")
    notebook = new_notebook(cells=[cell])
    restore(notebook, release_cells(lesson))
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("grade"):
            cell.outputs = [no_points(sentence)]
    return Judged(nbformat.writes(notebook), flags=[sentence])
