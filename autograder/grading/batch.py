"""Judges many submissions: here in a pool of processes, or on the workers of a Dask cluster.

Both give back (task, Judged) in any order, one for each task; who consumes them is the only writer.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Future,
    ProcessPoolExecutor,
    wait,
)
from dataclasses import dataclass

import torch

from autograder import course
from autograder.course import CourseError
from autograder.grading.judging import Judged, judge_bytes, kernel_source, nothing, remove_folders
from autograder.workers import context

ATTEMPTS = 2  # by itself, for a submission during which a worker has died
ANSWER_SECONDS = 10  # what a scheduler may take


@dataclass(frozen=True)
class Task:
    """What a worker needs to judge one submission: the file's bytes, and not its path."""

    place: int
    lesson: str
    data: bytes
    sandbox: str
    seed: int


def work(task: Task) -> Judged:
    """Judge one submission, in whichever process this is."""
    lesson = course.lesson(task.lesson)
    return judge_bytes(task.data, lesson, kernel_source(lesson, task.sandbox), task.seed)


def local(tasks: Iterable[Task], workers: int) -> Iterator[tuple[Task, Judged]]:
    """Judge in `workers` processes of this machine; one that dies is replaced."""
    # Lesson by lesson: a worker starts the warm process of each only once.
    waiting = deque(sorted(tasks, key=lambda task: task.lesson))
    running: dict[Future[Judged], Task] = {}
    while waiting:
        pool = _pool(workers)
        try:
            while waiting or running:
                # Few at a time: what runs when a worker dies is known, and memory stays bounded.
                while waiting and len(running) <= workers:
                    future = pool.submit(work, waiting[0])
                    running[future] = waiting.popleft()
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    judged = future.result()
                    yield running.pop(future), judged
        except BrokenExecutor:
            pass  # a worker died, and any of those that ran may be why
        finally:
            _end(pool)
        for task in running.values():
            yield task, _alone(task)
        running.clear()


def _alone(task: Task) -> Judged:
    """Judge with no other next to it that could be why its worker dies, or die with it."""
    for _ in range(ATTEMPTS):
        pool = _pool(1)
        try:
            return pool.submit(work, task).result()
        except BrokenExecutor:
            pass
        finally:
            _end(pool)
    sentence = "It could not be judged: every worker that tried has died over it."
    return nothing(course.lesson(task.lesson), sentence)


def _pool(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, mp_context=context(), initializer=_settle)


def _settle() -> None:
    """In a worker: leave Ctrl-C to the process that grades, and end when that one ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    torch.set_num_threads(1)  # there is a worker for each core, and the tensors are small
    parent = multiprocessing.parent_process()
    if parent is not None:

        def follow() -> None:
            multiprocessing.connection.wait([parent.sentinel])
            _leave()

        threading.Thread(target=follow, daemon=True).start()


def _leave(*signal: object) -> None:
    """End at once, in whatever this worker is; its kernels end when it has."""
    remove_folders()
    os._exit(1)


def _end(pool: ProcessPoolExecutor) -> None:
    """End the workers without waiting for what they are doing."""
    processes = list((getattr(pool, "_processes", None) or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(5)


def on_cluster(tasks: Iterable[Task], address: str) -> Iterator[tuple[Task, Judged]]:
    """Judge on the workers of the Dask scheduler at `address`, surviving the loss of some."""
    try:
        from distributed import Client, as_completed
        from distributed.scheduler import KilledWorker
    except ImportError as error:
        raise CourseError(
            "--cluster needs Dask: install it with `pip install 'block-by-block[cluster]'`."
        ) from error
    try:
        client = Client(address, timeout=f"{ANSWER_SECONDS}s")
    except (OSError, TimeoutError, ValueError) as error:
        raise CourseError(f"No Dask scheduler answers at {address} ({error}).") from error
    with client:
        futures = {client.submit(work, task, pure=False): task for task in tasks}
        for future in as_completed(futures):
            try:
                judged = future.result()
            except KilledWorker:
                sentence = "It could not be judged: several workers died over it."
                judged = nothing(course.lesson(futures[future].lesson), sentence)
            except CancelledError as error:
                raise OSError(f"the Dask scheduler at {address} is gone") from error
            yield futures[future], judged
            future.release()
