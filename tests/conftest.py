"""What several files of tests share: the small class, graded once with nothing in the way."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from xdist.scheduler import LoadScopeScheduling

from autograder import course
from tests import small_class

LESSONS = {name: lesson for lesson in course.lesson_names() for name in course.exercises_of(lesson)}

pytest.register_assert_rewrite("tests.pictures")
torch.set_num_threads(1)  # the tensors are small, and threads that wait for them keep a core busy


class ByLesson(LoadScopeScheduling):
    """For `-n`: a file's tests share a process, and those of the exercises one for each lesson."""

    def _split_scope(self, nodeid: str) -> str:
        exercise = nodeid.rpartition("[")[2].rstrip("]").split("-")[0]
        return f"{super()._split_scope(nodeid)} {LESSONS.get(exercise, '')}"


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    return ByLesson(config, log)


@pytest.fixture(autouse=True)
def outside_static_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COURSE_STATIC", raising=False)


@dataclass(frozen=True)
class Undisturbed:
    """The submissions, what a run leaves of them, and how long it took."""

    submissions: Path
    left: dict[str, Any]
    seconds: float


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    folder = tmp_path_factory.mktemp("undisturbed")
    submissions = small_class.make(folder / "submissions")
    started = time.monotonic()
    done = small_class.grade(submissions, folder / "out")
    assert done.returncode == 3, done.stdout + done.stderr  # two of them are flagged
    seconds = time.monotonic() - started
    return Undisturbed(submissions, small_class.left(folder / "out"), seconds)
