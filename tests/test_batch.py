"""No submission is lost between the one who shares them out and the workers."""

from concurrent.futures import BrokenExecutor, Future
from types import SimpleNamespace

from autograder.grading import batch
from autograder.grading.batch import Task


class Pool:
    """Answers with the place of a task at once; one task finds it broken."""

    left = 2

    def submit(self, work, task):
        Pool.left -= 1
        if Pool.left == 0:
            raise BrokenExecutor
        done = Future()
        done.set_result(task.place)
        return done

    def shutdown(self, **how):
        pass


def test_a_worker_that_dies_before_a_submission_is_taken_up(monkeypatch):
    monkeypatch.setattr(batch, "_pool", lambda workers: Pool())
    warm = SimpleNamespace(keep=set, start=str, address=lambda lesson: "")
    tasks = [Task(place, "norm", "none", 0) for place in range(5)]
    found = list(batch.local(tasks, lambda task: b"", 1, warm))
    assert sorted((task.place, judged) for task, judged in found) == [(n, n) for n in range(5)]
