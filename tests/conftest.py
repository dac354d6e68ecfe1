"""What several files of tests share: the small class, graded once with nothing in the way."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import small_class

torch.set_num_threads(1)  # the tensors are small, and threads that wait for them keep a core busy


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """For `-n`: a file's tests share a process, and those of the exercises one for each lesson."""
    for item in items:
        given = item.callspec.params if hasattr(item, "callspec") else {}
        lesson = getattr(given.get("exercise"), "lesson", "")
        item.add_marker(pytest.mark.xdist_group(f"{item.path.stem} {lesson}".strip()))


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
