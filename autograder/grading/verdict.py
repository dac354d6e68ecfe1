"""Decides the points of each check cell before nbgrader reads them off its outputs.

nbgrader gives full marks to a test cell without outputs and to one whose result is no number, none
to one that wrote a warning, and stops at a number that is too large. Here only a positive verdict
counts: a result of `check` for this exercise whose number and report agree.
"""

from html import escape

from nbformat import NotebookNode
from nbformat.v4 import new_output
from nbgrader.preprocessors import NbGraderPreprocessor
from nbgrader.utils import is_grade

from autograder.judge.report import REPORT_MIME, Report


class Verdict(NbGraderPreprocessor):
    """Stands before nbgrader's SaveAutoGrades in `Autograde.autograde_preprocessors`."""

    def preprocess_cell(
        self, cell: NotebookNode, resources: dict, index: int
    ) -> tuple[NotebookNode, dict]:
        if is_grade(cell):
            exercise = cell.metadata.nbgrader.grade_id.removeprefix("check_")
            cell.outputs = decide(cell.outputs, exercise, float(cell.metadata.nbgrader.points))
        return cell, resources


def decide(outputs: list[NotebookNode], exercise: str, points: float) -> list[NotebookNode]:
    """The outputs to keep, ending in the one result that nbgrader takes the score from."""
    results = [output for output in outputs if output.output_type == "execute_result"]
    others = [output for output in outputs if output.output_type != "execute_result"]
    for output in others:
        if output.output_type == "stream":
            output.name = "stdout"  # a warning is shown, and decides nothing
    if len(results) == 1 and _is_verdict(results[0], exercise, points):
        return [output for output in others if output.output_type != "error"] + results
    errors = [output for output in others if output.output_type == "error"]
    if errors:
        why = f"the check did not finish ({errors[-1].evalue or errors[-1].ename})"
    elif results:
        why = "what the cell returned is not a report of this check"
    else:
        why = "the check returned no report"
    sentence = f"0 of {points:g} points: {why}."
    zero = {"text/plain": "0", "text/html": f"<p><strong>{escape(sentence)}</strong></p>"}
    return [*others, new_output("execute_result", data=zero)]


def _is_verdict(output: NotebookNode, exercise: str, points: float) -> bool:
    try:
        report = Report.from_data(output.data[REPORT_MIME])
        return (
            report.exercise == exercise
            and report.max_score in (0, points)
            and 0 <= report.score <= points
            and float(output.data["text/plain"]) == report.score
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return False
