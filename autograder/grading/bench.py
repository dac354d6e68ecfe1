"""How fast a class is graded: `autograder grade` next to plain `nbgrader autograde`, in turn.

`make bench` writes docs/bench.md and docs/bench.png. Plain nbgrader grades the same notebooks one
after the other, so it is timed on few of them and its time for more follows from the time for one.
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
import psutil
from nbgrader.api import Gradebook
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from autograder import builder, course, kernels
from autograder.course import CourseError, Lesson
from autograder.grading import bench_report
from autograder.grading.bench_class import hand_in
from autograder.grading.bench_report import Row

LOOK_SECONDS = 0.3
CONFIG = """\
c = get_config()
c.CourseDirectory.course_id = "plain"
"""


@dataclass(frozen=True)
class Run:
    """What one command took: seconds, and MiB that its processes held together at most."""

    seconds: float
    mebibytes: float


def run(words: list[str], folder: Path, fine: tuple[int, ...] = (0,)) -> Run:
    """Run a command to its end, looking at its memory meanwhile; CourseError when it fails."""
    peak = 0.0
    log = folder / "bench.log"
    # nbgrader starts alembic by name; the environment may not be activated.
    env = {**os.environ, "PATH": f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"}
    with open(log, "w", encoding="utf-8") as output:
        started = time.perf_counter()
        process = subprocess.Popen(words, cwd=folder, env=env, stdout=output, stderr=output)
        ended = threading.Event()

        def look() -> None:
            nonlocal peak
            while not ended.wait(LOOK_SECONDS):
                peak = max(peak, _held(process.pid))

        looker = threading.Thread(target=look, daemon=True)
        looker.start()
        try:
            status = process.wait()
        finally:
            process.kill()
            seconds = time.perf_counter() - started
            ended.set()
            looker.join()
    if status not in fine:
        last = "\n".join(log.read_text("utf-8").splitlines()[-8:])
        raise CourseError(f"`{' '.join(words[1:5])} …` ended with status {status}:\n{last}")
    return Run(seconds, peak)


def _held(pid: int) -> float:
    """MiB of a process and all below it; what they share is counted once."""
    total = 0
    try:
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return 0.0
    for one in family:
        try:
            total += one.memory_full_info().pss
        except (psutil.Error, AttributeError):
            try:  # without a right to look closer, or on macOS
                total += one.memory_info().rss
            except psutil.Error:
                pass  # it has ended
    return total / 2**20


def plain(lesson: Lesson, submitted: Path, students: int, folder: Path) -> tuple[Run, dict]:
    """nbgrader as it comes, on the first `students`; its scores too."""
    nbgrader = [sys.executable, "-m", "nbgrader"]
    target = folder / "source" / lesson.stem / f"{lesson.stem}.ipynb"
    target.parent.mkdir(parents=True)
    nbformat.write(builder.source(lesson), target)
    (folder / "nbgrader_config.py").write_text(CONFIG, "utf-8")
    run([*nbgrader, "generate_assignment", lesson.stem], folder)
    for one in sorted(submitted.iterdir())[:students]:
        to = folder / "submitted" / one.name / lesson.stem
        shutil.copytree(one, to)
    took = run([*nbgrader, "autograde", lesson.stem, "--create"], folder)
    with Gradebook(f"sqlite:///{folder / 'gradebook.db'}") as gradebook:
        return took, {s.student_id: s.score for s in gradebook.assignment_submissions(lesson.stem)}


def ours(submitted: Path, students: int, workers: int, folder: Path) -> tuple[Run, dict]:
    """`autograder grade` on the first `students`, from nothing; its scores too."""
    part = folder / "class"
    for one in sorted(submitted.iterdir())[:students]:
        shutil.copytree(one, part / one.name)
    words = [sys.executable, "-m", "autograder.cli", "grade", str(part), "--out", "out"]
    words += ["--seed", "0"]  # as in a notebook: with other inputs a wrong answer may lose more
    took = run([*words, "--workers", str(workers)], folder, fine=(0, 3))
    with open(folder / "out" / "grades.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return took, {(row["student"], row["lesson"]): float(row["score"]) for row in rows}


@dataclass(frozen=True)
class Plain:
    """nbgrader on one lesson: seconds for one notebook with start-up, and for each more."""

    lesson: Lesson
    students: int
    first: float
    each: float
    mebibytes: float
    scores: dict[str, float]

    def seconds(self, students: int) -> float:
        return self.first + (students - 1) * self.each


class Bench:
    """Measures in a folder of its own, and says on a progress bar what it is at."""

    def __init__(self, home: Path, progress: Progress, total: int) -> None:
        self._home, self._progress = home, progress
        self._bar = progress.add_task("", total=total)

    def _folder(self, what: str) -> Path:
        self._progress.update(self._bar, description=what)
        self._progress.advance(self._bar)
        shutil.rmtree(self._home / "work", ignore_errors=True)
        (self._home / "work").mkdir()
        return self._home / "work"

    def plain(self, lesson: Lesson, submitted: Path, students: int) -> Plain:
        """nbgrader on one and on `students`: it takes the same time for each."""
        one, _ = plain(lesson, submitted, 1, self._folder(f"{lesson.stem}: nbgrader, 1 student"))
        words = f"{lesson.stem}: nbgrader, {students} students"
        many, scores = plain(lesson, submitted, students, self._folder(words))
        each = (many.seconds - one.seconds) / (students - 1)
        return Plain(lesson, students, one.seconds, each, many.mebibytes, scores)

    def row(self, plains: list[Plain], submitted: Path, students: int, workers: int) -> Row:
        """`autograder grade` on the lessons of `plains` at once, next to nbgrader on each."""
        name = plains[0].lesson.stem if len(plains) == 1 else f"all {len(plains)}"
        words = f"{name}: autograder, {students} students, {workers} workers"
        mine, scores = ours(submitted, students, workers, self._folder(words))
        same = [
            scores[student, one.lesson.stem] == score
            for one in plains
            for student, score in one.scores.items()
            if (student, one.lesson.stem) in scores
        ]
        return Row(
            lesson=name,
            students=students,
            notebooks=students * len(plains),
            workers=workers,
            plain_seconds=sum(one.seconds(students) for one in plains),
            plain_mebibytes=max(one.mebibytes for one in plains),
            seconds=mine.seconds,
            mebibytes=mine.mebibytes,
            same=f"{sum(same)} of {len(same)}",
        )


def measure(
    lessons: list[Lesson],
    sizes: list[int],
    workers: list[int],
    whole: int,
    plain_students: int,
    progress: Progress,
) -> Iterator[Row]:
    """A row for each lesson, size of class and number of workers; then a class with all lessons."""
    whole = whole if len(lessons) > 1 else 0
    total = len(lessons) * (2 + len(sizes) * len(workers)) + bool(whole) * len(workers)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        home = Path(name)
        bench = Bench(home, progress, total)
        plains = []
        for lesson in lessons:
            submitted = home / lesson.name
            hand_in(lesson, submitted, max(*sizes, whole, plain_students))
            one = bench.plain(lesson, submitted, plain_students)
            plains.append(one)
            for size in sizes:
                for n in workers:
                    yield bench.row([one], submitted, size, n)
        if whole:
            everything = home / "everything"
            for lesson in lessons:
                shutil.copytree(home / lesson.name, everything, dirs_exist_ok=True)
            for n in workers:
                yield bench.row(plains, everything, whole, n)


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m autograder.grading.bench", description=__doc__)
    parser.add_argument("--students", type=int, nargs="+", default=[5, 15, 45])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--lessons", nargs="+", default=[one.name for one in course.lessons()])
    parser.add_argument("--plain-students", type=int, default=5, help="how many nbgrader grades")
    parser.add_argument("--out", type=Path, default=Path("docs"))
    parser.add_argument("--whole", type=int, default=30, help="students with all the lessons")
    chosen = parser.parse_args(words)
    if min(*chosen.students, *chosen.workers, chosen.whole) < 1:
        parser.error("numbers are from 1 on")
    if chosen.plain_students < 2:
        parser.error("--plain-students is from 2 on: what each takes is seen by comparing")
    if not (Path(sys.prefix) / "share/jupyter/kernels" / kernels.CPU).exists():
        kernels.install()
    lessons = [course.lesson(name) for name in chosen.lessons]
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(
        TextColumn("{task.description}"), *columns, console=Console(stderr=True)
    ) as progress:
        rows: list[Row] = []
        for row in measure(
            lessons,
            chosen.students,
            chosen.workers,
            chosen.whole,
            chosen.plain_students,
            progress,
        ):
            rows.append(row)
            bench_report.write(rows, chosen.out)  # what is measured by now is kept
    print((chosen.out / "bench.md").read_text("utf-8"))


if __name__ == "__main__":
    try:
        main()
    except CourseError as error:
        sys.exit(str(error))
