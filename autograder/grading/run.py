"""One run over a class: judged by workers, and entered here, by the only writer there is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from nbgrader.api import InvalidEntry
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
from autograder.grading.judging import Judged
from autograder.grading.outcomes import Ledger, Outcome, write_csv
from autograder.grading.overview import Row, write_overview
from autograder.grading.submissions import Submission, Unreadable, load
from autograder.grading.warm import Warm


def run(
    found: list[Submission],
    out: Path,
    warm: Warm,
    sandbox: str,
    seed: int | None,
    workers: int | None,
    regrade: bool,
    db: str,
    cluster: str,
) -> list[Outcome]:
    """Grade what was found, where `autograder.grading.grade` has looked at the rest."""
    with _in_words(out), CourseFolder(out, db, sandbox) as folder:
        folder.prepare({one.lesson.stem: one.lesson for one in found if one.lesson})
        ledger = Ledger(out / "course" / "outcomes.jsonl")
        whole = _Batch(found, folder, ledger, sandbox, seed, regrade)
        try:
            with _progress() as progress:
                bar = progress.add_task(
                    "", total=len(found), completed=len(found) - len(whole.tasks)
                )
                for task, judged in whole.judged(warm, workers or os.cpu_count() or 1, cluster):
                    one = found[task.place]
                    progress.update(bar, description=f"{one.student} {one.stem}")
                    whole.record(task, judged)
                    progress.advance(bar)
            ledger.end()
        finally:
            write_csv(out / "grades.csv", whole.outcomes())
        write_overview(out, whole.rows())
    return whole.outcomes()


@contextmanager
def _in_words(out: Path) -> Iterator[None]:
    """What ends a run, as a sentence."""
    kept = "What was graded is kept; put that right and run the same command again."
    try:
        yield
    except OSError as error:
        raise CourseError(
            f"Could not go on, with {out}: {error.strerror or error}. {kept}"
        ) from error
    except (SQLAlchemyError, InvalidEntry) as error:
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
        self._seed = seed
        self._done: dict[int, Outcome] = {}
        self._fingerprints: dict[int, str] = {}
        self.tasks: list[Task] = []
        # A run that goes on after an interrupt draws what the interrupted one drew.
        drawn = ledger.begin(seed, regrade)
        for place, one in enumerate(found):
            if one.lesson is None:
                self._done[place] = Outcome(one.student, "", 0, 0, "flagged", one.note)
                continue
            task = Task(place, one.stem, sandbox, drawn)
            with suppress(Unreadable):
                self._load(task)
            known = ledger.find(one.student, one.stem, self._fingerprints[place])
            if known is not None and folder.holds(one.student, one.stem):
                self._done[place] = self._scored(known)
            else:
                self.tasks.append(task)

    def _load(self, task: Task) -> bytes:
        """The bytes of a submission as they are now, and its fingerprint with them."""
        one = self._found[task.place]
        assert one.lesson is not None and one.path is not None
        seen = b""
        try:
            seen = data = load(one.path, one.home)
            return data
        except Unreadable as error:
            seen = str(error).encode()
            raise
        finally:
            mark = self._folder.fingerprint(one.lesson, seen, self._seed)
            self._fingerprints[task.place] = mark

    def judged(self, warm: Warm, workers: int, cluster: str) -> Iterator[tuple[Task, Judged]]:
        """Each task with its verdicts, in the order in which they come."""
        if not self.tasks:
            return iter(())
        if cluster:
            return batch.on_cluster(self.tasks, self._load, cluster)
        return batch.local(self.tasks, self._load, min(workers, len(self.tasks)), warm)

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
