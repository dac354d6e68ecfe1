"""A folder of submitted notebooks becomes a gradebook, a CSV and feedback, through nbgrader."""

import os
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

from autograder.course import CourseError
from autograder.grading.course_folder import CourseFolder
from autograder.grading.outcomes import Ledger, Outcome, write_csv
from autograder.grading.submissions import Submission, Unreadable, find, put_in_place

__all__ = ["Outcome", "grade"]


def grade(
    submissions: Path, out: Path, sandbox: str = "auto", seed: int | None = None
) -> list[Outcome]:
    """Grade every notebook under `submissions`; one outcome for each, and files for all in `out`.

    A submission that was graded before, and has not changed since, keeps its grade.
    """
    if sandbox != "none":
        raise CourseError(
            "Submitted notebooks are programs. Without a sandbox they would run as you, with your "
            "rights, and the sandbox is not there yet. If you trust everything in this folder, "
            "say so with --sandbox none."
        )
    submissions, out = Path(submissions).resolve(), Path(out).resolve()
    found = find(submissions)
    if out.is_relative_to(submissions):
        raise CourseError(
            f"{out} lies inside the submissions, so its own files would be taken for a student's. "
            "Name a folder outside them with --out."
        )
    course = CourseFolder(out)
    course.prepare({one.lesson.stem: one.lesson for one in found if one.lesson})
    ledger = Ledger(out / "course" / "outcomes.json")
    if seed is not None:
        os.environ["COURSE_SEED"] = str(seed)  # the kernels inherit it
    try:
        outcomes = []
        with _progress() as progress:
            task = progress.add_task("", total=len(found))
            for one in found:
                progress.update(task, description=f"{one.student} {one.stem}")
                outcomes.append(_grade_one(one, course, ledger, seed))
                progress.advance(task)
    finally:
        if seed is not None:
            del os.environ["COURSE_SEED"]
    write_csv(out / "grades.csv", outcomes)
    return outcomes


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


def _grade_one(one: Submission, course: CourseFolder, ledger: Ledger, seed: int | None) -> Outcome:
    """The outcome of one submission; nothing that is wrong with it reaches the next one."""
    if one.lesson is None or one.path is None:
        return Outcome(one.student, "", 0, 0, "flagged", one.note)
    fingerprint = course.fingerprint(one.lesson, one.path, seed)
    outcome = ledger.find(one.student, one.stem, fingerprint)
    if outcome is None or not course.holds(one.student, one.stem):
        outcome, settled = _grade_anew(one, course)
        if settled:
            ledger.keep(outcome, fingerprint)
    # The score always comes from the gradebook: an instructor may have changed it there.
    score, max_score = course.score(one.student, one.stem)
    return replace(outcome, score=score, max_score=max_score)


def _grade_anew(one: Submission, course: CourseFolder) -> tuple[Outcome, bool]:
    """The outcome of a run, and whether the next run may keep it."""
    reasons, flags = [one.note], []
    try:
        reasons += put_in_place(one, course.submitted(one.student, one.stem))
    except Unreadable as error:
        flags.append(str(error))
    failure = course.autograde(one.student, one.stem)
    if failure:
        course.zero(one.student, one.stem)
        flags.append(failure)
    elif not flags:
        notes = course.notes(one.student, one.stem)
        reasons += notes["restored"]
        flags += notes["stopped"]
    status = "flagged" if flags else "graded"
    reason = " ".join(filter(None, reasons + flags))
    return Outcome(one.student, one.stem, 0, 0, status, reason), not failure
