"""What goes wrong while a class is graded: a rerun leaves what an undisturbed run leaves."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from autograder.grading import batch
from autograder.grading.judging import Judged
from autograder.grading.warm import Warm
from tests.conftest import Undisturbed
from tests.small_class import (
    LESSON,
    NO_EPS,
    Run,
    grade,
    hand_in,
    left,
    make,
    rows,
    scores,
    with_answers,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")
KILLS = 10


def test_killed_at_ten_moments(undisturbed: Undisturbed, tmp_path: Path) -> None:
    draw = random.Random()
    moments = [(place + draw.random()) / KILLS for place in range(KILLS)]
    print("killed after", *(f"{moment:.0%}" for moment in moments), "of a run")
    seconds, folders, fresh = undisturbed.seconds, 0, True
    while moments or not fresh:
        out = tmp_path / f"out{folders}"
        next_one = -1 if fresh else 0  # a rerun is shorter, so the early moments are for these
        started = time.monotonic()
        with Run(undisturbed.submissions, out) as run:
            try:
                status, said = run.end(moments[next_one] * seconds if moments else 240)
            except subprocess.TimeoutExpired:
                status, family = None, run.family()
        if status is None:
            moments.pop(next_one)
            fresh = False
            _, alive = psutil.wait_procs(family, timeout=10)
            assert alive == []
        else:
            assert status == 3, said
            assert left(out) == undisturbed.left
            if fresh:  # a machine has its quick hours: the same part of what a run takes now
                seconds = time.monotonic() - started
            folders, fresh = folders + 1, True


def test_a_worker_killed(undisturbed: Undisturbed, tmp_path: Path) -> None:
    with Run(undisturbed.submissions, tmp_path / "out", "--workers", "2") as run:
        run.when(lambda: run.graded() > 1)
        run.workers()[0].kill()
        status, said = run.end()
    assert status == 3, said
    assert left(tmp_path / "out") == undisturbed.left


def deadly(task: batch.Task) -> Judged:
    if task.place == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return Judged(str(task.place))


def test_what_kills_its_workers_costs_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "work", deadly)
    tasks = [batch.Task(place, LESSON.stem, "none", 7) for place in range(6)]
    with Warm("none") as warm:
        found = list(batch.local(tasks, lambda task: b"", 2, warm))
    judged = {task.place: one for task, one in found}
    assert len(found) == len(judged) == len(tasks)
    assert "died over it" in judged.pop(2).flags[0]
    assert [judged[place].notebook for place in sorted(judged)] == ["0", "1", "3", "4", "5"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small disk can't be made here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


def test_a_full_disk(undisturbed: Undisturbed, small_disk: Path) -> None:
    out = small_disk / "out"
    done = grade(undisturbed.submissions, out)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "No space left" in done.stderr and "Traceback" not in done.stderr
    subprocess.run(["mount", "-o", "remount,size=64m", small_disk], check=True)
    done = grade(undisturbed.submissions, out)
    assert done.returncode == 3, done.stdout + done.stderr
    assert left(out) == undisturbed.left


def test_a_gradebook_locked_for_seconds(undisturbed: Undisturbed, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with Run(undisturbed.submissions, out) as run:
        run.when(lambda: run.graded() > 0)
        with closing(sqlite3.connect(out / "gradebook.db", timeout=30)) as other:
            other.execute("BEGIN EXCLUSIVE")
            before = run.graded()
            time.sleep(7)
            assert run.graded() <= before + 1
        status, said = run.end()
    assert status == 3, said
    assert left(out) == undisturbed.left


def test_a_gradebook_locked_for_long(undisturbed: Undisturbed, tmp_path: Path) -> None:
    out = tmp_path / "out"
    url = f"sqlite:///{tmp_path / 'elsewhere.db'}"
    with Run(undisturbed.submissions, out, "--db", f"{url}?timeout=1") as run:
        run.when(lambda: run.graded() > 0)
        with closing(sqlite3.connect(tmp_path / "elsewhere.db", timeout=30)) as other:
            other.execute("BEGIN EXCLUSIVE")
            status, said = run.end()
    assert status == 2, said
    assert "database is locked" in said and "Traceback" not in said
    assert len(rows(out)) < len(undisturbed.left["csv"])
    done = grade(undisturbed.submissions, out, "--db", url)
    assert done.returncode == 3, done.stdout + done.stderr
    assert left(out, url) == undisturbed.left


def test_interrupted(undisturbed: Undisturbed, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with Run(undisturbed.submissions, out) as run:
        run.when(lambda: run.graded() > 1)
        family = run.family()
        run.interrupt()
        status, said = run.end(30)
    assert status == 130, said
    assert "Interrupted. What was graded is kept" in said and "Traceback" not in said
    _, alive = psutil.wait_procs(family, timeout=10)
    assert alive == []
    assert run.graded() - 1 <= len(rows(out)) <= run.graded()  # one may have been half-way
    done = grade(undisturbed.submissions, out)
    assert done.returncode == 3, done.stdout + done.stderr
    assert left(out) == undisturbed.left


def test_a_submission_changed_meanwhile(undisturbed: Undisturbed, tmp_path: Path) -> None:
    submissions, out = make(tmp_path / "submissions"), tmp_path / "out"
    before = scores_of(undisturbed)
    with Run(submissions, out) as run:
        run.when(lambda: run.graded() > 1)
        for student in ("ada", "emil"):  # one is graded by now, most likely
            hand_in(submissions, student, with_answers({"layer_norm": NO_EPS}))
        assert run.end()[0] == 3
    # Each as it was when it was read, early or late, and never a mixture.
    after = before["bo"]
    assert scores(out)["ada"] in (before["ada"], after)
    assert scores(out)["emil"] in (before["emil"], after)
    assert grade(submissions, out).returncode == 3
    assert scores(out) == before | {"ada": after, "emil": after}
    kept = run.graded()
    assert grade(submissions, out).returncode == 3
    assert run.graded() == kept  # nothing was graded again


def scores_of(undisturbed: Undisturbed) -> dict[str, float]:
    return {row["student"]: float(row["score"]) for row in undisturbed.left["csv"]}
