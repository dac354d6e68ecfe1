"""A hostile class: submissions of a few lines each, made from the solved notebook.

Every module of this folder has one kind of them. A submission is a function with a docstring that
says what it tries; it changes `work`, the notebook, and `case` says what the outcome must be.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from autograder import builder
from autograder.course import ROOT, lesson

LESSON = lesson("norm")
POINTS = {exercise.name: exercise.points for exercise in LESSON.exercises}
QUIZ = {"norm_quiz": POINTS["norm_quiz"]}
ROOT = ROOT  # the course as the grader has it, which no submission may reach
SECRET = "the-other-student-wrote-this"
VARIABLE = "COURSE_TEST_SECRET"


@dataclass(frozen=True)
class Case:
    """One submission and its outcome: `points`, for the CSV `says` (a pattern) and `flagged`.

    `known` is the reason why the outcome is not yet what it must be.
    """

    kind: str
    name: str
    make: Callable[[Work], None]
    points: dict[str, int]
    flagged: bool | None  # None: either way
    says: str
    known: str


CASES: list[Case] = []


def case(
    points: dict[str, int] | None = None,
    *,
    flagged: bool | None = False,
    says: str = "",
    known: str = "",
) -> Callable[[Callable[[Work], None]], None]:
    """Enter a submission; exercises that `points` leaves out must get nothing, None is all."""

    def add(make: Callable[[Work], None]) -> None:
        kind = make.__module__.rpartition(".")[2]
        due = {name: 0 for name in POINTS} | (POINTS if points is None else points)
        CASES.append(Case(kind, make.__name__, make, due, flagged, says, known))

    return add


@dataclass(frozen=True)
class World:
    """What lies outside the sandbox and has to stay as it is, unread and unreached."""

    folder: Path
    port: int

    @property
    def gradebook(self) -> Path:
        return self.folder / "gradebook.db"

    @property
    def other(self) -> Path:
        """The notebook of another student."""
        return self.folder / "submissions" / "other" / f"{LESSON.stem}.ipynb"

    def untouched(self) -> bool:
        files = sorted(path.name for path in self.folder.rglob("*") if path.is_file())
        known = sorted([self.gradebook.name, self.other.name])
        return files == known and self.gradebook.read_text("utf-8") == "grades"


class Work:
    """The solved notebook on its way to becoming a submission, to be found at `path`."""

    def __init__(self, path: Path, world: World, tag: str = "") -> None:
        self.path, self.world = path, world
        self.tag = tag  # what the command lines of its processes have in them
        self.notebook = _solved()

    @property
    def cells(self) -> list[NotebookNode]:
        return self.notebook.cells

    @cells.setter
    def cells(self, cells: Iterable[NotebookNode]) -> None:
        self.notebook.cells = list(cells)

    def cell(self, grade_id: str) -> NotebookNode:
        return next(one for one in self.cells if _grade_id(one) == grade_id)

    def place(self, grade_id: str) -> int:
        return self.cells.index(self.cell(grade_id))

    def stub(self, *but: str) -> Work:
        """Leave unanswered all but these exercises."""
        stubs = {_grade_id(one): one.source for one in _release().cells}
        for name in POINTS.keys() - set(but):
            self.cell(name).source = stubs[name]
        return self

    def answer(self, name: str, code: str) -> None:
        self.cell(name).source = code

    def first(self, code: str) -> None:
        """Run `code` with the imports, which every answer needs."""
        imports = next(one for one in self.cells if one.cell_type == "code")
        imports.source += "\n" + code

    def after(self, name: str, code: str) -> None:
        """Run `code` in the cell of this answer, behind it."""
        self.cell(name).source += "\n\n" + code

    def insert(self, before: str, code: str) -> NotebookNode:
        cell = new_code_cell(code)
        self.cells.insert(self.place(before), cell)
        return cell

    def text(self) -> str:
        return nbformat.writes(self.notebook)

    def write(self, content: str | bytes) -> None:
        """Hand in these bytes in place of the notebook."""
        self.path.write_bytes(content.encode() if isinstance(content, str) else content)

    def finish(self) -> Path:
        if not os.path.lexists(self.path):
            self.write(self.text())
        return self.path


def _grade_id(cell: NotebookNode) -> str:
    mark = cell.metadata.get("nbgrader", {})
    return mark.get("grade_id", "") if isinstance(mark, dict) else ""


@cache
def _source() -> NotebookNode:
    return builder.source(LESSON)


@cache
def _release() -> NotebookNode:
    return builder.release(_source())


def _solved() -> NotebookNode:
    return deepcopy(_source())
