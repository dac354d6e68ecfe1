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
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass

import torch

from autograder import course
from autograder.course import CourseError
from autograder.grading.judging import Judged, judge_bytes, kernel_source, nothing
from autograder.workers import context

ATTEMPTS = 3  # a submission during which this many workers died gets no more


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
    attempts: dict[int, int] = {}
    pool = _pool(workers)
    running: dict[Future[Judged], Task] = {}
    try:
        while waiting or running:
            # Few at a time: what runs when a worker dies is known, and memory stays bounded.
            while waiting and len(running) < workers + 1:
                task = waiting.popleft()
                running[pool.submit(work, task)] = task
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            broken = False
            for future in finished:
                task = running.pop(future)
                try:
                    yield task, future.result()
                except BrokenExecutor:
                    broken = True
                    yield from _again(task, waiting, attempts)
            if broken:
                for task in running.values():
                    yield from _again(task, waiting, attempts)
                running.clear()
                pool.shutdown(wait=False, cancel_futures=True)
                pool = _pool(1 if any(count > 1 for count in attempts.values()) else workers)
    finally:
        _end(pool)


def _again(
    task: Task, waiting: deque[Task], attempts: dict[int, int]
) -> Iterator[tuple[Task, Judged]]:
    attempts[task.place] = attempts.get(task.place, 0) + 1
    if attempts[task.place] < ATTEMPTS:
        waiting.append(task)
    else:
        sentence = f"It could not be judged: {ATTEMPTS} workers died over it."
        yield task, nothing(course.lesson(task.lesson), sentence)


def _pool(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, mp_context=context(), initializer=_settle)


def _settle() -> None:
    """In a worker: leave Ctrl-C to the process that grades, and end when that one ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)  # there is a worker for each core, and the tensors are small
    parent = multiprocessing.parent_process()
    if parent is not None:

        def follow() -> None:
            multiprocessing.connection.wait([parent.sentinel])
            os._exit(1)

        threading.Thread(target=follow, daemon=True).start()


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
        client = Client(address, timeout="20s")
    except (OSError, TimeoutError, ValueError) as error:
        raise CourseError(f"No Dask scheduler answers at {address} ({error}).") from error
    with client:
        futures = {client.submit(work, task, pure=False): task for task in tasks}
        for future in as_completed(futures):
            try:
                yield futures[future], future.result()
            except KilledWorker:
                lesson = course.lesson(futures[future].lesson)
                sentence = "It could not be judged: several workers died over it."
                yield futures[future], nothing(lesson, sentence)
            future.release()
