"""From the source notebook to the two that are committed: the student's, and the solved one."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import nbformat
from jupyter_client.kernelspec import NoSuchKernel
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from nbgrader.preprocessors import (
    CheckCellMetadata,
    ClearOutput,
    ClearSolutions,
    ComputeChecksums,
    LockCells,
)

from autograder.builder.lesson import problem
from autograder.course import CourseError, Lesson
from autograder.kernels import CPU

CELL_TIMEOUT = 120  # seconds; a whole lesson has 20


class ClearAnswers(ClearSolutions):
    """nbgrader's own, except that the place of a value is left empty.

    A function's stub raises when the function is called. At the top of a cell the same stub would
    raise when the cell runs, and a quiz that is not answered yet is no error.
    """

    def preprocess_cell(
        self, cell: NotebookNode, resources: dict, cell_index: int
    ) -> tuple[NotebookNode, dict]:
        value = re.search(r"^### BEGIN SOLUTION", cell.source, re.MULTILINE)
        usual = super().code_stub
        self.code_stub = {"python": ""} if value else usual
        cell, resources = super().preprocess_cell(cell, resources, cell_index)
        self.code_stub = usual
        cell.source = cell.source.rstrip()
        return cell, resources


def release(source: NotebookNode) -> NotebookNode:
    """The student's notebook, by nbgrader's steps of `generate_assignment` without its database."""
    notebook = deepcopy(source)
    resources: dict[str, object] = {}
    for step in (
        LockCells(lock_solution_cells=False),
        ClearAnswers(),
        ClearOutput(),
        CheckCellMetadata(),
        ComputeChecksums(),
    ):
        notebook, resources = step.preprocess(notebook, resources)
    return notebook


def solve(
    source: NotebookNode, lesson: Lesson, lines: dict[str, int], cell_done: Callable[[], None]
) -> NotebookNode:
    """The source notebook executed on the CPU kernel, with outputs that do not vary."""
    notebook, _ = ComputeChecksums().preprocess(deepcopy(source), {})
    running: list[NotebookNode] = []
    client = NotebookClient(
        notebook,
        kernel_name=CPU,
        timeout=CELL_TIMEOUT,
        resources={"metadata": {"path": str(lesson.solved.parent)}},
        store_widget_state=False,  # its ids are random, and no widget is shown
        record_timing=False,
        coalesce_streams=True,  # how a print is cut into chunks is chance
        on_cell_execute=lambda cell, **_: running.append(cell),
        on_cell_executed=lambda **_: cell_done(),
    )
    # One thread for each: several are built at a time.
    env = {"OMP_NUM_THREADS": "1", **os.environ, "COURSE_STATIC": "1"}
    try:
        # Without encryption the kernel warns, on the author's terminal, that it has none.
        client.execute(env=env, transport_encryption="auto")
    except NoSuchKernel:
        raise CourseError(
            f"The kernel {CPU} is not installed here; run `autograder kernels`."
        ) from None
    except (CellExecutionError, RuntimeError, OSError) as error:
        if not running:
            raise CourseError(
                f"The kernel {CPU} does not start here ({error}); run `autograder kernels`."
            ) from error
        raise _failed(running[-1], lesson, lines, error) from error
    for cell in code_cells(notebook):
        _settle(cell, lesson, lines)
    notebook.metadata = deepcopy(source.metadata)
    return notebook


def with_outputs_of(path: Path, source: NotebookNode) -> NotebookNode | None:
    """The source notebook with the outputs stored at `path`; None where its code is another."""
    if not path.exists():
        return None
    notebook, _ = ComputeChecksums().preprocess(deepcopy(source), {})
    old, new = code_cells(nbformat.read(path, as_version=4)), code_cells(notebook)
    if [(cell.source, cell.metadata.get("tags")) for cell in old] != [
        (cell.source, cell.metadata.get("tags")) for cell in new
    ]:
        return None
    for stored, cell in zip(old, new, strict=True):
        cell.outputs, cell.execution_count = stored.outputs, stored.execution_count
    return notebook


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _failed(
    cell: NotebookNode, lesson: Lesson, lines: dict[str, int], error: Exception
) -> CourseError:
    """What to say of the cell that the execution stopped at."""
    line = lines[cell.id]
    if isinstance(error, CellExecutionError):
        said = f"raised {error.ename}: {error.evalue}"
        frames = [out.traceback for out in cell.outputs if out.output_type == "error"]
        plain = re.sub(r"\x1b\[[\d;]*m", "", "\n".join(frames[-1])) if frames else ""
        inside = re.search(r"Cell In\[\d+\], line (\d+)", plain)
        if inside and "nbgrader" not in cell.metadata:
            line += int(inside[1])
    elif isinstance(error, CellTimeoutError):
        said = f"ran longer than {CELL_TIMEOUT} seconds"
    elif isinstance(error, DeadKernelError):
        said = "ended the kernel"
    else:
        said = f"was not executed to its end: {error}"
    return problem(lesson, line, f"the cell {cell.id!r} {said}")


def _settle(cell: NotebookNode, lesson: Lesson, lines: dict[str, int]) -> None:
    """Check what a cell was to raise, and keep of a traceback what is the same everywhere."""
    errors = [output for output in cell.outputs if output.output_type == "error"]
    if "raises-exception" in cell.metadata.get("tags", []) and not errors:
        raise problem(
            lesson,
            lines[cell.id],
            "this cell is tagged raises-exception and did not raise; remove the tag",
        )
    for error in errors:
        # The frames name files of this machine; JupyterLab shows the last line of them in red too.
        error.traceback = [f"{error.ename}: {error.evalue}"]
