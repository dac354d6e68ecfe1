"""Judges one submission: its cells run in a kernel, the checks and the verdict stay here."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import Any

from nbformat import NotebookNode
from nbformat.v4 import new_output

from autograder import course
from autograder.course import Lesson
from autograder.grading import reading
from autograder.grading.restore import release_demos
from autograder.grading.sandbox import Kernel, KernelSource, SharedKernels, Stopped
from autograder.judge.evaluate import judge
from autograder.judge.exercise import Exercise
from autograder.judge.report import Report

KERNELS = 3  # how many a submission may use up before its remaining exercises get nothing


@dataclass
class Execution:
    """What became of a submission: a report per exercise, and sentences for the instructor.

    An exercise that could not be judged has no report but a sentence in `zeros`.
    """

    reports: dict[str, Report] = field(default_factory=dict)
    zeros: dict[str, str] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def mistakes(self) -> dict[str, list[str]]:
        """For each exercise, the names of the known mistakes that were recognised."""
        return {name: list(report.advice) for name, report in self.reports.items()}


class KernelLink:
    """A link of the judge to an object in a submission's kernel."""

    def __init__(self, kernel: Kernel, name: str) -> None:
        self._kernel, self._name = kernel, name

    def perform(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._kernel.ask(self._name, request)


def execute(
    nb: NotebookNode, lesson: Lesson, source: KernelSource | SharedKernels, seed: int
) -> Execution:
    """Run the cells of `nb` that its exercises need, and judge each where its check stands.

    `nb` has the release's grade cells; outputs are put into its cells. A cell that ends its kernel
    is left out of the next one, so that it costs only what depends on it.
    """
    done = Execution()
    exercises = course.exercises_of(lesson.name)
    cells = read_cells(nb, lesson)
    answers = [place for place, cell in enumerate(nb.cells) if _mark(cell).get("solution")]
    plan = sorted(reading.needed(cells, exercises, answers))
    plan = [place for place in plan if _is_code(nb.cells[place]) and not _grades(nb.cells[place])]
    checks = {place: _exercise(cell) for place, cell in enumerate(nb.cells) if _grades(cell)}
    done.notices = [
        f"Cell {place + 1} names `{word}`, a part of the judge: look at what it does there."
        for place in plan
        if (word := reading.names_the_judge(nb.cells[place].source))
    ]
    for name in exercises.keys() & set(checks.values()):
        if problem := _ruled_out(exercises[name], cells):
            done.reports[name] = problem
        elif done.notices and exercises[name].ruled_out:
            # What watches for ruled-out functions runs in the kernel, so it can't be believed.
            done.zeros[name] = f"Not judged until your instructor has looked. {done.notices[0]}"
    deadly: set[int] = set()
    for _ in range(KERNELS):
        waiting = [name for name in checks.values() if not _settled(done, name)]
        if not waiting:
            break
        try:
            with source.kernel() as kernel:
                _run(nb, kernel, plan, checks, deadly, done, seed)
        except Stopped as stopped:
            done.stopped.append(str(stopped))
    for place, name in checks.items():
        if not _settled(done, name):
            last = done.stopped[-1] if done.stopped else "It could not be judged."
            done.zeros[name] = f"Not judged. {last}"
        nb.cells[place].outputs = [_result(done, name)]
        nb.cells[place].execution_count = None
    return done


def read_cells(nb: NotebookNode, lesson: Lesson) -> list[reading.Cell]:
    """What the cells of a submission bind, change and use."""
    cells = [
        reading.read(cell.source) if _is_code(cell) else reading.Cell(None) for cell in nb.cells
    ]
    imported = set().union(*(cell.imports for cell in cells))
    demos = release_demos(lesson)
    for cell, read in zip(nb.cells, cells, strict=True):
        if cell.source in demos:
            # As it was handed out: `nn.init.zeros_(branch.weight)` is no change to torch.
            read.changes -= imported
    return cells


def _run(
    nb: NotebookNode,
    kernel: Kernel,
    plan: list[int],
    checks: dict[int, str],
    deadly: set[int],
    done: Execution,
    seed: int,
) -> None:
    """Go through the notebook in one kernel, until its end or the kernel's."""
    last = max(place for place, name in checks.items() if not _settled(done, name))
    for place in sorted({*plan, *checks}):
        if place > last:
            return
        if place in checks:
            name = checks[place]
            if not _settled(done, name):
                try:
                    done.reports[name] = _judge(kernel, name, seed)
                except Stopped as stopped:
                    done.zeros[name] = f"While `{name}` was being checked: {stopped}"
                    raise Stopped(done.zeros[name]) from stopped
        elif place not in deadly:
            cell = nb.cells[place]
            try:
                cell.outputs = kernel.run(cell.source, f"Cell {place + 1}").outputs
            except Stopped as stopped:
                deadly.add(place)
                message = f"Cell {place + 1} ended its kernel. {stopped}"
                cell.outputs = [
                    new_output("error", ename="Stopped", evalue=message, traceback=[message])
                ]
                for name in _defined_by(cell, done):
                    done.zeros[name] = message
                raise Stopped(message) from stopped


def _judge(kernel: Kernel, name: str, seed: int) -> Report:
    exercise = course.exercise(name)
    names = exercise.ruled_out.names if exercise.ruled_out else ()
    if not kernel.open(name, names):
        problem = f"There is no `{name}` in this notebook: the cell that defines it did not run."
        return Report.nothing(exercise, seed, problem)
    return judge(exercise, KernelLink(kernel, name), seed)


def _ruled_out(exercise: Exercise, cells: list[reading.Cell]) -> Report | None:
    """A report without points where the answer's own code calls what the exercise rules out."""
    if exercise.ruled_out is None:
        return None
    found = reading.ruled_out_call(cells, exercise.name, exercise.ruled_out.names)
    if found is None:
        return None
    path, line = found
    where = f" (line {line} of its cell)" if line else ""
    return Report.nothing(exercise, 0, exercise.ruled_out.refuse(path, where))


def _defined_by(cell: NotebookNode, done: Execution) -> list[str]:
    grade_id = _mark(cell).get("grade_id")
    return [grade_id] if grade_id and not _settled(done, grade_id) else []


def _settled(done: Execution, name: str) -> bool:
    return name in done.reports or name in done.zeros


def _result(done: Execution, name: str) -> NotebookNode:
    """The output of a check cell: nbgrader reads the score from its plain text."""
    if name in done.reports:
        return new_output("execute_result", data=done.reports[name]._repr_mimebundle_())
    return no_points(done.zeros[name])


def no_points(sentence: str) -> NotebookNode:
    """The output of a check cell that was not judged, and why."""
    html = f"<p><strong>0 points. {escape(sentence)}</strong></p>"
    return new_output("execute_result", data={"text/plain": "0", "text/html": html})


def _is_code(cell: NotebookNode) -> bool:
    return cell.cell_type == "code"


def _mark(cell: NotebookNode) -> dict[str, Any]:
    return cell.metadata.get("nbgrader", {})


def _grades(cell: NotebookNode) -> bool:
    return bool(_mark(cell).get("grade"))


def _exercise(cell: NotebookNode) -> str:
    return str(_mark(cell)["grade_id"]).removeprefix("check_")
