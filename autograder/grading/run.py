"""Runs a submission's cells, and keeps what was earned when the kernel dies half-way."""

import os
from subprocess import DEVNULL

from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from nbformat.v4 import new_output
from nbgrader.preprocessors import Execute
from traitlets import Integer, Unicode

from autograder.grading.restore import NOTES


class RunCells(Execute):
    """nbgrader's Execute, in the course's own CPU kernel whatever the notebook names."""

    timeout = Integer(60, help="Seconds that one cell may take.").tag(config=True)
    kernel_name = Unicode("course-cpu", help="The kernel to grade in.").tag(config=True)

    def preprocess(self, nb: NotebookNode, resources: dict, km=None) -> tuple[NotebookNode, dict]:
        self.stopped = ""
        nb, resources = super().preprocess(nb, resources, km)
        notes = nb.metadata.setdefault(NOTES, NotebookNode())
        notes["stopped"] = [self.stopped] if self.stopped else []
        return nb, resources

    def setup_kernel(self, **kwargs):
        # What a kernel writes past Jupyter would land between the lines of the progress bar.
        env = {**os.environ, "COURSE_STATIC": "1"}  # no widget runs on a feedback page
        return super().setup_kernel(stdout=DEVNULL, stderr=DEVNULL, env=env, **kwargs)

    def preprocess_cell(
        self, cell: NotebookNode, resources: dict, index: int
    ) -> tuple[NotebookNode, dict]:
        if cell.cell_type != "code":
            return cell, resources
        if self.stopped:
            cell.outputs = [_error("NotRun", f"This cell was not run. {self.stopped}")]
            return cell, resources
        try:
            return super().preprocess_cell(cell, resources, index)
        except DeadKernelError:
            what = "ended the kernel"
        except CellTimeoutError:
            what = f"took more than {self.timeout} s and could not be interrupted"
        first_line = cell.source.strip().partition("\n")[0]
        self.stopped = f"Cell {index + 1} ({first_line[:60]!r}) {what}."
        cell.outputs.append(_error("Stopped", self.stopped))
        return cell, resources


def _error(name: str, sentence: str) -> NotebookNode:
    return new_output("error", ename=name, evalue=sentence, traceback=[f"{name}: {sentence}"])
