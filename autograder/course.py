"""Where everything in the course is: lessons, their files, their exercises.

A lesson `norm` has one file of that name in each room, so there is no list to keep: the lessons are
the files `lessons/NN_name.md`, and an exercise belongs to the lesson whose checks define it.
"""

import difflib
import importlib
import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from autograder.judge.exercise import Exercise, Mistakes

ROOT = Path(__file__).resolve().parent.parent


class CourseError(Exception):
    """Something the user can put right; the message is a sentence that says how."""


@dataclass(frozen=True)
class Lesson:
    """One lesson: `number` 1, `name` "norm", and `source`, the Markdown it is written in."""

    number: int
    name: str
    source: Path
    root: Path = ROOT

    @property
    def stem(self) -> str:
        return f"{self.number:02}_{self.name}"

    @property
    def notebook(self) -> Path:
        """What a student opens."""
        return self.root / "notebooks" / f"{self.stem}.ipynb"

    @property
    def solved(self) -> Path:
        """The executed notebook with every answer in it."""
        return self.root / "solutions" / f"{self.stem}.ipynb"

    @cached_property
    def title(self) -> str:
        match = re.search(r"^title:\s*(.+?)\s*$", self.source.read_text("utf-8"), re.MULTILINE)
        return match[1].strip("\"'") if match else self.name

    @property
    def exercises(self) -> list[Exercise]:
        return list(exercises_of(self.name).values())


def lessons(root: Path = ROOT) -> list[Lesson]:
    """All lessons, by number."""
    found = []
    for path in sorted((root / "lessons").glob("*.md")):
        match = re.fullmatch(r"(\d\d)_([a-z][a-z0-9_]*)", path.stem)
        if not match:
            raise CourseError(f"{path}: a lesson's file is named like 01_norm.md; rename it.")
        found.append(Lesson(int(match[1]), match[2], path, root))
    return found


def lesson(key: str | int) -> Lesson:
    """The lesson called `key`: its name, its stem or its number."""
    known = lessons()
    for one in known:
        if key in (one.name, one.stem, one.number):
            return one
    names = ", ".join(one.stem for one in known)
    raise CourseError(f"There is no lesson {key!r}. The lessons are: {names}.")


@cache
def exercises_of(name: str) -> dict[str, Exercise]:
    """The exercises of the lesson called `name`, in the order of its checks file."""
    try:
        checks = importlib.import_module(f"autograder.checks.{name}")
        mistakes = importlib.import_module(f"autograder.mistakes.{name}")
        references = importlib.import_module(f"solutions.{name}")
    except ModuleNotFoundError as error:
        raise CourseError(f"Lesson {name!r} has no file for {error.name}; write it.") from error
    found: dict[str, Exercise] = {}
    for exercise in vars(checks).values():
        if isinstance(exercise, Exercise):
            if exercise.name in found:
                raise CourseError(
                    f"autograder/checks/{name}.py defines the exercise {exercise.name!r} twice."
                )
            exercise.lesson = name
            if not hasattr(references, exercise.name):
                raise CourseError(f"solutions/{name}.py does not define {exercise.name!r}.")
            exercise.reference = getattr(references, exercise.name)
            found[exercise.name] = exercise
    for catalogue in vars(mistakes).values():
        if isinstance(catalogue, Mistakes):
            if catalogue.exercise not in found:
                raise CourseError(
                    f"autograder/mistakes/{name}.py lists mistakes of {catalogue.exercise!r}, "
                    f"which autograder/checks/{name}.py does not define."
                )
            found[catalogue.exercise].mistakes = list(catalogue)
    return found


def lesson_names() -> list[str]:
    """Names of all lessons that have checks."""
    return sorted(
        path.stem for path in (ROOT / "autograder/checks").glob("*.py") if path.stem != "__init__"
    )


def exercise(name: str) -> Exercise:
    """The exercise called `name`, whichever lesson it belongs to."""
    known: list[str] = []
    for lesson_name in lesson_names():
        found = exercises_of(lesson_name)
        if name in found:
            return found[name]
        known += found
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5) or known
    raise CourseError(f"There is no exercise {name!r}. Did you mean: {', '.join(close)}?")
