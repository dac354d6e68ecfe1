"""Judges many submissions: here in a pool of processes, or on the workers of a Dask cluster.

Both give back (task, Judged) in any order, one for each task; who consumes them is the only writer.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import shutil
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Future,
    ProcessPoolExecutor,
    wait,
)
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autograder import course
from autograder.course import CourseError
from autograder.grading.judging import Judged, judge_bytes, nothing
from autograder.grading.sandbox import Gone, Limits, SharedKernels
from autograder.grading.sources import kernel_source, remove_folders
from autograder.grading.submissions import Unreadable
from autograder.grading.warm import Warm
from autograder.workers import context

ATTEMPTS = 2  # by itself, for a submission during which a worker has died
ANSWER_SECONDS = 10  # what a scheduler may take
AHEAD = 2  # how many a cluster holds for each of its threads


@dataclass(frozen=True)
class Task:
    """What a worker needs to judge one submission: the file's bytes, and not its path.

    `kernels` is the address of the warm process to ask, "" for the worker's own.
    """

    place: int
    lesson: str
    sandbox: str
    seed: int
    data: bytes = b""
    kernels: str = ""


# The file's bytes, or Unreadable: read when its turn comes, so that a class of any size fits.
Load = Callable[[Task], bytes]


_shared: set[Path] = set()  # folders of the process that grades


def work(task: Task) -> Judged:
    """Judge one submission, in whichever process this is."""
    lesson = course.lesson(task.lesson)
    if task.kernels:
        _shared.add(Path(task.kernels).parent)
        try:
            shared = SharedKernels(task.kernels, Limits())
            return judge_bytes(task.data, lesson, shared, task.seed)
        except Gone:
            pass  # whatever ended it; this worker makes its own
    return judge_bytes(task.data, lesson, kernel_source(lesson, task.sandbox), task.seed)


def local(
    tasks: Iterable[Task], load: Load, workers: int, warm: Warm
) -> Iterator[tuple[Task, Judged]]:
    """Judge in `workers` processes of this machine; one that dies is replaced."""
    waiting = deque(sorted(tasks, key=lambda task: task.lesson))
    while waiting:
        running: dict[Future[Judged], Task] = {}
        pool = _pool(workers)
        try:
            while waiting or running:
                # Few at a time: what runs when a worker dies is known, and memory stays bounded.
                while waiting and len(running) <= workers:
                    task = waiting.popleft()
                    following = next((t.lesson for t in waiting if t.lesson != task.lesson), "")
                    warm.keep({task.lesson, following, *(t.lesson for t in running.values())})
                    kernels = warm.address(task.lesson)
                    if following:
                        warm.start(following)
                    try:
                        filled = replace(task, data=load(task), kernels=kernels)
                        running[pool.submit(work, filled)] = filled
                    except Unreadable as error:
                        yield task, nothing(course.lesson(task.lesson), str(error))
                    except BrokenExecutor:
                        waiting.appendleft(task)  # a worker died before this one was taken up
                        raise
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    judged = future.result()
                    yield running.pop(future), judged
        except BrokenExecutor:
            pass  # a worker died, and any of those that ran may be why
        finally:
            _end(pool)
        for task in running.values():
            yield task, _alone(task)


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
    parent = multiprocessing.parent_process()
    if parent is not None:

        def follow() -> None:
            multiprocessing.connection.wait([parent.sentinel])
            for folder in _shared:
                shutil.rmtree(folder, ignore_errors=True)
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


def on_cluster(tasks: Iterable[Task], load: Load, address: str) -> Iterator[tuple[Task, Judged]]:
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
        waiting = deque(sorted(tasks, key=lambda task: task.lesson))
        futures: dict[Any, Task] = {}
        done = as_completed()
        while waiting or futures:
            while waiting and len(futures) < AHEAD * max(1, sum(client.nthreads().values())):
                task = waiting.popleft()
                try:
                    future = client.submit(work, replace(task, data=load(task)), pure=False)
                except Unreadable as error:
                    yield task, nothing(course.lesson(task.lesson), str(error))
                else:
                    futures[future] = task
                    done.add(future)
            if not futures:
                continue
            future = next(done)
            task = futures.pop(future)
            try:
                judged = future.result()
            except KilledWorker:
                sentence = "It could not be judged: several workers died over it."
                judged = nothing(course.lesson(task.lesson), sentence)
            except CancelledError as error:
                raise OSError(f"the Dask scheduler at {address} is gone") from error
            yield task, judged
            future.release()
