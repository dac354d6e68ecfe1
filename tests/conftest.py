"""What several files of tests share: the small class, graded once with nothing in the way."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import small_class

torch.set_num_threads(1)  # the tensors are small, and threads that wait for them keep a core busy


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
