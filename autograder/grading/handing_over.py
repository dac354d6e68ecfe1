"""Where nbgrader's autograde meets our judge: a step in the place of its Execute."""

from __future__ import annotations

import secrets

import nbformat
from nbformat import NotebookNode
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets import Integer, Unicode

from autograder import course
from autograder.grading.execute import execute
from autograder.grading.judging import Judged
from autograder.grading.sources import kernel_source

# Submissions that were judged already, by (student, assignment) as nbgrader calls them.
handed_over: dict[tuple[str, str], Judged] = {}


class JudgeCells(NbGraderPreprocessor):
    """Puts the verdicts into the check cells; nbgrader's SaveAutoGrades reads the points there.

    `autograder grade` hands over what its workers have judged. `nbgrader autograde` and the
    formgrader's button have it judged here, in the same way.
    """

    sandbox = Unicode("auto", help="auto, bwrap, or none for submissions you trust.").tag(
        config=True
    )
    seed = Integer(-1, help="What the inputs are drawn from; -1 draws anew.").tag(config=True)

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        ids = resources["nbgrader"]
        judged = handed_over.pop((ids["student"], ids["assignment"]), None)
        if judged is not None:
            done = nbformat.reads(judged.notebook, as_version=4)
            for cell, known in zip(nb.cells, done.cells, strict=True):
                if cell.cell_type == "code":
                    cell.outputs = known.outputs
            return nb, resources
        lesson = course.lesson(ids["assignment"])
        seed = self.seed if self.seed >= 0 else secrets.randbelow(2**31)
        execute(nb, lesson, kernel_source(lesson, self.sandbox), seed)
        return nb, resources
