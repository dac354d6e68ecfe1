"""A folder of submitted notebooks becomes a gradebook, a CSV and feedback, through nbgrader."""

from __future__ import annotations

from pathlib import Path

from autograder.course import CourseError
from autograder.grading.outcomes import Outcome
from autograder.grading.sources import sandbox_works
from autograder.grading.submissions import find
from autograder.grading.warm import Warm

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
    try:
        with Warm(sandbox) as warm:
            first = min((one.stem for one in found if one.lesson), default="")
            if first and not cluster and not (out / "course").exists():
                warm.start(first)  # it imports torch while this process imports nbgrader
            from autograder.grading.run import run

            return run(found, out, warm, sandbox, seed, workers, regrade, db, cluster)
    except KeyboardInterrupt:
        raise Interrupted(
            "Interrupted. What was graded is kept; run the same command again to go on."
        ) from None
