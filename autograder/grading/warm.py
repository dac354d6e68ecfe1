"""The warm processes of a run, one for each lesson, which all of its workers share."""

from __future__ import annotations

from collections.abc import Container

from autograder import course
from autograder.grading.sandbox import KernelSource
from autograder.grading.sources import new_source


class Warm:
    """Starts them when they are wanted and ends them afterwards; a context manager."""

    def __init__(self, sandbox: str) -> None:
        self._sandbox = sandbox
        self._sources: dict[str, KernelSource] = {}

    def __enter__(self) -> Warm:
        return self

    def __exit__(self, *error: object) -> None:
        self.keep(())

    def start(self, lesson: str) -> None:
        """Start that of a lesson, if there is none yet, and return while it imports."""
        if lesson not in self._sources:
            source = new_source(course.lesson(lesson), self._sandbox)
            self._sources[lesson] = source
            source.start()

    def address(self, lesson: str) -> str:
        """Where SharedKernels finds it, once it is ready; "" where the system allows none."""
        self.start(lesson)
        return self._sources[lesson].address()

    def keep(self, lessons: Container[str]) -> None:
        """End those of all other lessons."""
        for lesson in set(self._sources):
            if lesson not in lessons:
                self._sources.pop(lesson).close()
