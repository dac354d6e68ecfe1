"""Finds what was handed in and reads it, whatever happened to it on the way."""

import json
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_notebook

from autograder.course import CourseError, Lesson, lessons
from autograder.grading.cells import new_cell

MOST_CELLS = 2_000
MOST_TEXT = 2_000_000
LARGEST = 50_000_000  # bytes; a notebook with pictures has a few million


class Unreadable(Exception):
    """A notebook that cannot be graded; the message says why."""


@dataclass(frozen=True)
class Submission:
    """One student's notebook for one lesson; no lesson and no path where the folder holds none."""

    student: str
    lesson: Lesson | None
    path: Path | None
    note: str = ""
    home: Path = Path()

    @property
    def stem(self) -> str:
        return self.lesson.stem if self.lesson else ""


def find(folder: Path) -> list[Submission]:
    """Every student's notebooks, in `folder/<student>/` or `folder/<student>/<lesson>/`."""
    if not folder.is_dir():
        raise CourseError(f"{folder} is not a folder. Name the folder that holds the submissions.")
    course = lessons()
    students = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    found: list[Submission] = []
    for home in students:
        student = home.name.encode("utf-8", "replace").decode()  # a name that is no valid text
        own = [one for lesson in course if (one := _find_one(home, student, lesson))]
        nothing = f"No notebook of a lesson in this folder, such as {course[0].stem}.ipynb."
        found += own or [Submission(student, None, None, nothing)]
    if not any(one.path for one in found):
        raise CourseError(
            f"No notebook found in {folder}. It must hold one folder for each student, with "
            f"<student>/{course[0].stem}.ipynb or <student>/{course[0].stem}/{course[0].stem}.ipynb"
            " in it."
        )
    return found


def _find_one(home: Path, student: str, lesson: Lesson) -> Submission | None:
    stem = lesson.stem
    folders = [home, home / stem]
    for exact in (folder / f"{stem}.ipynb" for folder in folders):
        if exact.is_file():
            return Submission(student, lesson, exact, home=home)
    # Browsers and JupyterLab rename copies: "01_norm (1).ipynb", "01_norm-Copy1.ipynb".
    copies = [p for folder in folders for p in folder.glob(f"{stem}*.ipynb") if p.is_file()]
    if not copies:
        return None
    newest = max(copies, key=lambda path: (path.stat().st_mtime, path.name))
    note = f"Read from {newest.name}."
    if len(copies) > 1:
        note = f"Read from {newest.name}, the newest of {len(copies)} copies."
    return Submission(student, lesson, newest, note, home)


def load(path: Path, home: Path) -> bytes:
    """The bytes of a submitted file in the student's folder `home`; Unreadable says why not."""
    try:
        if not path.resolve().is_relative_to(home.resolve()):
            raise Unreadable("The notebook is a link to a file outside the student's folder.")
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise Unreadable("The notebook is no ordinary file.")
            data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise Unreadable(f"The notebook is larger than {LARGEST // 1_000_000} MB.")
        return data
    except OSError as error:
        raise Unreadable(f"The file could not be read: {error.strerror}.") from error


def read(raw: bytes) -> tuple[NotebookNode, list[str]]:
    """A clean notebook with the student's sources and grade ids, and what was odd about the file.

    Outputs, cell ids and other metadata stay behind: grading needs none of them, and a wrong one
    must not stop it.
    """
    notes = []
    try:
        if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
            text = raw.decode("utf-16")
        else:
            text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
        notes.append("The file was not UTF-8; it was read as Latin-1.")
    if not text.strip():
        raise Unreadable("The notebook is an empty file.")
    try:
        data = json.loads(text)
        if isinstance(data, dict) and isinstance(data.get("cells"), list):
            data["cells"] = [cell for cell in data["cells"] if isinstance(cell, dict)]
            if len(data["cells"]) > MOST_CELLS:
                raise Unreadable(f"The notebook has more than {MOST_CELLS:,} cells.")
        cells = nbformat.convert(nbformat.from_dict(data), 4).cells
        clean = [_clean_cell(cell) for cell in cells]
        if sum(len(cell.source) for cell in clean) > MOST_TEXT:
            raise Unreadable(f"The notebook has more than {MOST_TEXT:,} characters of text.")
    except Unreadable:
        raise
    except json.JSONDecodeError as error:
        raise Unreadable(
            f"The notebook is not valid JSON (line {error.lineno}: {error.msg}); the file may have "
            "been cut off on its way here."
        ) from error
    except Exception as error:  # nbformat raises many kinds for files that are no notebooks
        raise Unreadable(f"The file is not a notebook ({type(error).__name__}).") from error
    for place, cell in enumerate(clean):
        cell.id = f"cell-{place}"  # not drawn at random, or no two feedback pages were the same
    return new_notebook(cells=clean), notes


def _clean_cell(cell: NotebookNode) -> NotebookNode:
    source: Any = cell.get("source", "")
    if isinstance(source, list):
        source = "".join(line for line in source if isinstance(line, str))
    source = source if isinstance(source, str) else ""
    source = source.encode("utf-8", "replace").decode()  # half a character from a bad escape
    kind = cell.get("cell_type")
    clean = new_cell(kind if kind in ("code", "markdown") else "raw", source)
    metadata = cell.get("metadata")
    grader = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    grade_id = grader.get("grade_id") if isinstance(grader, dict) else None
    if isinstance(grade_id, str) and re.fullmatch(r"\w+", grade_id):
        clean.metadata["nbgrader"] = NotebookNode(grade_id=grade_id)
    return clean
