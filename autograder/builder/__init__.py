"""Lessons into notebooks: the student's, and the solved one with its outputs.

    lessons/01_norm.md -> source notebook -> notebooks/01_norm.ipynb
                                          -> solutions/01_norm.ipynb, by executing it

Two builds are byte-identical, so that what is committed can be proven fresh.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
import psutil
from nbformat import NotebookNode
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from autograder.builder.fresh import difference, strays
from autograder.builder.lesson import read, source
from autograder.builder.notebooks import release, solve, with_outputs_of
from autograder.course import CourseError, Lesson

__all__ = ["build", "release", "source", "watch"]


def build(
    lessons: Sequence[Lesson],
    check: bool = False,
    *,
    reuse: bool = False,
    console: Console | None = None,
) -> list[str]:
    """Build the notebooks of `lessons`; returns one sentence for each file that was not fresh.

    What was not fresh is written, or with `check` left as it is. A file that differs only by
    rounding in its pictures stays as it is. With `reuse`, outputs are taken from the solved
    notebook where its code is unchanged (see `watch`). Several lessons are built at a time.
    """
    console = console or Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:

        def one(lesson: Lesson) -> list[str]:
            return list(_build_one(lesson, check, reuse, progress))

        stale = _each(one, lessons)
    if check:
        roots = {lesson.root for lesson in lessons}
        for path in (path for root in roots for path in strays(root)):
            stale.append(f"{path}: no lesson builds this notebook; remove it.")
    return stale


def _each(one: Callable[[Lesson], list[str]], lessons: Sequence[Lesson]) -> list[str]:
    """What `one` says of all lessons, as many at a time as there are cores."""
    if len(lessons) == 1:
        return one(lessons[0])
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        # The last lessons take longest, so they begin first.
        found = {lesson: pool.submit(one, lesson) for lesson in reversed(lessons)}
        try:
            return [sentence for lesson in lessons for sentence in found[lesson].result()]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for kernel in psutil.Process().children():
                kernel.terminate()  # else what others run would have to end first
            raise


def _build_one(lesson: Lesson, check: bool, reuse: bool, progress: Progress) -> Iterator[str]:
    """Build both notebooks of a lesson; a sentence for each that was not fresh."""
    task = progress.add_task(lesson.stem, total=None)

    def started(cells: int) -> Callable[[], None]:
        progress.update(task, total=cells)
        return lambda: progress.advance(task)

    for path, notebook in _made(lesson, reuse, started):
        text = nbformat.writes(notebook) + "\n"
        committed = path.read_text("utf-8", "replace") if path.exists() else None
        name = path.relative_to(lesson.root)
        if committed is None:
            yield f"{name}: the file is missing; `autograder build` writes it."
        elif where := difference(committed, text):
            yield f"{name}:{where}."
        else:
            continue
        if not check:
            _write(path, text)
    progress.update(task, total=1, completed=1)


def _made(
    lesson: Lesson, reuse: bool, started: Callable[[int], Callable[[], None]]
) -> Iterator[tuple[Path, NotebookNode]]:
    """The student's notebook, at once, and then the solved one, which takes seconds."""
    notebook, lines = read(lesson)
    yield lesson.notebook, release(notebook)
    solved = with_outputs_of(lesson.solved, notebook) if reuse else None
    yield lesson.solved, solved or solve(notebook, lesson, lines, started(len(lines)))


def _write(path: Path, text: str) -> None:
    """Replace the file in one step: JupyterLab and a killed build never see half of it."""
    path.parent.mkdir(exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text, "utf-8", newline="\n")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def watch(lessons: Sequence[Lesson], console: Console | None = None) -> None:
    """Build, then build again whatever its author saves, until interrupted.

    - Prose changed: both notebooks are refreshed at once, and nothing is executed.
    - Code changed in a lesson: its student's notebook is refreshed at once, and its solved one is
      executed from the first cell, since any cell may depend on the ones above it.
    - A .py file of the course changed: the command starts afresh and executes every lesson it was
      given, since any of them may import it.

    An open JupyterLab asks for its own file's changes when it is focused: File, Reload from Disk.
    """
    console = console or Console(stderr=True)
    executed: set[Lesson] = set()  # in this run, without an error: their outputs can be kept
    changed = list(lessons)
    code, prose = _python_files(lessons), _saved(lessons)
    while True:
        for lesson in changed:
            try:
                for sentence in build([lesson], reuse=lesson in executed, console=console):
                    console.print(f"Wrote {sentence.partition(':')[0]}", highlight=False)
                executed.add(lesson)
            except CourseError as error:
                console.print(f"[red]{escape(str(error))}[/]", highlight=False)
                executed.discard(lesson)
        changed = []
        console.print("Watching; Ctrl-C ends it.")
        while not changed:
            time.sleep(0.2)
            if _python_files(lessons) != code:
                os.execv(sys.executable, sys.orig_argv)
            before, prose = prose, _saved(lessons)
            changed = [lesson for lesson in lessons if before[lesson] != prose[lesson]]


def _saved(lessons: Sequence[Lesson]) -> dict[Lesson, float]:
    return {lesson: lesson.source.stat().st_mtime for lesson in lessons}


def _python_files(lessons: Sequence[Lesson]) -> dict[Path, float]:
    rooms = ("autograder", "solutions", "visuals")
    roots = {lesson.root for lesson in lessons}
    files = (path for root in roots for room in rooms for path in (root / room).rglob("*.py"))
    return {path: path.stat().st_mtime for path in files}
