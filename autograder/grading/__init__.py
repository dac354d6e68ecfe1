"""A folder of submitted notebooks becomes a gradebook, a CSV and feedback, through nbgrader."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from sqlalchemy.exc import SQLAlchemyError

from autograder.course import CourseError
from autograder.grading import batch
from autograder.grading.batch import Task
from autograder.grading.course_folder import CourseFolder
from autograder.grading.judging import Judged, nothing, sandbox_works
from autograder.grading.outcomes import Ledger, Outcome, write_csv
from autograder.grading.overview import Row, write_overview
from autograder.grading.submissions import Submission, Unreadable, find, load

__all__ = ["Interrupted", "Outcome", "grade"]


class Interrupted(CourseError):
    """Ctrl-C: what was graded by then is kept."""


def grade(
    submissions: Path,
    out: Path,
    sandbox: str = "auto",
    seed: int | None = None,
    *,
    workers: int | None = None,
    regrade: bool = False,
    db: str = "",
    cluster: str = "",
) -> list[Outcome]:
    """Grade every notebook under `submissions`; one outcome for each, and files for all in `out`.

    A submission that was graded before, and has not changed since, keeps its grade unless
    `regrade`. `workers` processes judge at a time (by default one for each core), or those of a
    Dask `cluster`; this process alone writes the gradebook, at the SQLAlchemy URL `db` if given.
    """
    submissions, out = Path(submissions).resolve(), Path(out).resolve()
    if not cluster:
        sandbox_works(sandbox)
    if workers is not None and workers < 1:
        raise CourseError("--workers takes a number from 1 on.")
    found = find(submissions)
    if out.is_relative_to(submissions):
        raise CourseError(
            f"{out} lies inside the submissions, so its own files would be taken for a student's. "
            "Name a folder outside them with --out."
        )
    with _in_words(out):
        folder = CourseFolder(out, db, sandbox)
        folder.prepare({one.lesson.stem: one.lesson for one in found if one.lesson})
        ledger = Ledger(out / "course" / "outcomes.jsonl")
        run = _Batch(found, folder, ledger, sandbox, seed, regrade)
        try:
            with _progress() as progress:
                bar = progress.add_task("", total=len(found), completed=len(found) - len(run.tasks))
                for task, judged in run.judged(workers or os.cpu_count() or 1, cluster):
                    one = found[task.place]
                    progress.update(bar, description=f"{one.student} {one.stem}")
                    run.record(task, judged)
                    progress.advance(bar)
        finally:
            write_csv(out / "grades.csv", run.outcomes())
        write_overview(out, run.rows())
    return run.outcomes()


@contextmanager
def _in_words(out: Path) -> Iterator[None]:
    """What ends a run, as a sentence."""
    kept = "What was graded is kept; put that right and run the same command again."
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(
            "Interrupted. What was graded is kept; run the same command again to go on."
        ) from None
    except OSError as error:
        raise CourseError(
            f"Could not go on, with {out}: {error.strerror or error}. {kept}"
        ) from error
    except SQLAlchemyError as error:
        reason = " ".join(str(getattr(error, "orig", error)).split())
        raise CourseError(f"Could not go on with the gradebook: {reason}. {kept}") from error


class _Batch:
    """One run over all submissions: what is still to do, and what came of the rest."""

    def __init__(
        self,
        found: list[Submission],
        folder: CourseFolder,
        ledger: Ledger,
        sandbox: str,
        seed: int | None,
        regrade: bool,
    ) -> None:
        self._found, self._folder, self._ledger = found, folder, ledger
        self._done: dict[int, Outcome] = {}
        self._fingerprints: dict[int, str] = {}
        self._ready: list[tuple[Task, Judged]] = []
        self.tasks: list[Task] = []
        # A run that goes on after an interrupt draws what the interrupted one drew.
        drawn = ledger.seed(seed, anew=regrade)
        for place, one in enumerate(found):
            if one.lesson is None or one.path is None:
                self._done[place] = Outcome(one.student, "", 0, 0, "flagged", one.note)
                continue
            unreadable = ""
            try:
                data = load(one.path, one.home)
            except Unreadable as error:
                data, unreadable = b"", str(error)
            mark = folder.fingerprint(one.lesson, data + unreadable.encode(), seed)
            self._fingerprints[place] = mark
            known = None if regrade else ledger.find(one.student, one.stem, mark)
            if known is not None and folder.holds(one.student, one.stem):
                self._done[place] = self._scored(known)
                continue
            task = Task(place, one.stem, data, sandbox, drawn)
            self.tasks.append(task)
            if unreadable:
                self._ready.append((task, nothing(one.lesson, unreadable)))

    def judged(self, workers: int, cluster: str) -> Iterator[tuple[Task, Judged]]:
        """Each task with its verdicts, in the order in which they come."""
        yield from self._ready
        settled = {task.place for task, _ in self._ready}
        rest = [task for task in self.tasks if task.place not in settled]
        if not rest:
            return
        yield from (
            batch.on_cluster(rest, cluster)
            if cluster
            else batch.local(rest, min(workers, len(rest)))
        )

    def record(self, task: Task, judged: Judged) -> None:
        """Enter one submission into the gradebook, then into the ledger: never the other way."""
        one = self._found[task.place]
        flags = list(judged.flags)
        failure = self._folder.record(one.student, one.stem, judged)
        if failure:
            self._folder.zero(one.student, one.stem)
            flags.append(failure)
        outcome = Outcome(
            student=one.student,
            lesson=one.stem,
            score=0,
            max_score=0,
            status="flagged" if flags else "graded",
            reason=" ".join(filter(None, [one.note, *judged.notes, *flags])),
        )
        if not failure:
            mark = self._fingerprints[task.place]
            self._ledger.keep(outcome, mark, judged.scores, judged.mistakes)
        self._done[task.place] = self._scored(outcome)

    def _scored(self, outcome: Outcome) -> Outcome:
        # The score always comes from the gradebook: an instructor may have changed it there.
        score, max_score = self._folder.score(outcome.student, outcome.lesson)
        return replace(outcome, score=score, max_score=max_score)

    def rows(self) -> list[Row]:
        """What each student has of each exercise, for the instructor's overview."""
        rows = []
        for one in self._found:
            entry = self._ledger.entries.get((one.stem, one.student))
            if one.lesson is None or entry is None:
                continue
            for exercise in one.lesson.exercises:
                name = exercise.name
                points = entry["scores"].get(name, 0)
                mistakes = entry["mistakes"].get(name, [])
                rows.append(Row(one.student, one.stem, name, points, exercise.points, mistakes))
        return rows

    def outcomes(self) -> list[Outcome]:
        """What is known by now, in the order of the submissions."""
        return [self._done[place] for place in sorted(self._done)]


def _progress() -> Progress:
    return Progress(
        TextColumn("Grading"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False),
        console=Console(stderr=True),
    )
