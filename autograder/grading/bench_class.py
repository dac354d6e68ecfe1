"""A class to measure with: some solved everything, some nothing, some made known mistakes."""

from __future__ import annotations

import ast
import builtins
import inspect
from copy import deepcopy
from itertools import cycle
from pathlib import Path
from types import FunctionType
from typing import Any

import nbformat

from autograder import builder
from autograder.course import Lesson

IMPORTS = "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n\n\n"
KNOWN = {"torch", "nn", "F", *dir(builtins)}


def hand_in(lesson: Lesson, folder: Path, students: int) -> None:
    """Notebooks of that many students, the same ones every time: of three, one of each kind."""
    solved = builder.source(lesson)
    untouched = builder.release(solved)
    slips = cycle(written_mistakes(lesson) or [("", "")])
    for number in range(students):
        notebook = deepcopy(untouched if number % 3 == 1 else solved)
        if number % 3 == 2:
            exercise, source = next(slips)
            for cell in notebook.cells:
                if cell.metadata.get("nbgrader", {}).get("grade_id") == exercise:
                    cell.source = source
        path = folder / f"student{number:03}" / f"{lesson.stem}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, path)


def written_mistakes(lesson: Lesson) -> list[tuple[str, str]]:
    """Exercises and cells with a mistake of the catalogue, where it can be written down alone."""
    return [
        (exercise.name, f"{IMPORTS}{source}\n\n{exercise.name} = {mistake.answer.__name__}")
        for exercise in lesson.exercises
        for mistake in exercise.mistakes
        if (source := _source(mistake.answer))
    ]


def _source(answer: Any) -> str:
    """The code of a function with that of the functions it uses; "" where it uses other things."""
    found: dict[str, str] = {}
    waiting = [answer]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, FunctionType) or "<" in one.__qualname__:
            return ""
        definition = ast.parse(inspect.getsource(one)).body[0]
        if not isinstance(definition, ast.FunctionDef) or definition.name != one.__name__:
            return ""
        definition.decorator_list = []
        found[one.__name__] = ast.unparse(definition)
        own = {*one.__code__.co_varnames, *found}
        for name in {n.id for n in ast.walk(definition) if isinstance(n, ast.Name)} - own - KNOWN:
            used = one.__globals__.get(name)
            if getattr(used, "__name__", "") != name or one.__closure__:
                return ""  # known there under another name
            waiting.append(used)
    return "\n\n\n".join(reversed(found.values()))
