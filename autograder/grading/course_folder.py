"""The folder in which nbgrader works, OUT/course, and the gradebook next to it."""

import hashlib
import logging
import os
import re
import shutil
import sys
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
import nbgrader.api
from alembic.script import ScriptDirectory
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.converters import Autograde, GenerateAssignment, GenerateFeedback
from nbgrader.converters.base import BaseConverter, NbGraderException
from nbgrader.coursedir import CourseDirectory
from nbgrader.dbutil import ALEMBIC_DIR
from sqlalchemy import create_engine, event
from sqlalchemy.engine import Engine
from sqlalchemy.exc import ArgumentError, OperationalError
from traitlets.config import Config, LoggingConfigurable

from autograder import builder, kernels
from autograder.course import ROOT, CourseError, Lesson
from autograder.grading.config import FILE, configure
from autograder.grading.handing_over import handed_over
from autograder.grading.judging import DISK, Judged
from autograder.grading.outcomes import write_whole


@cache
def _engine(url: str, **options: Any) -> Engine:
    """The one engine for a gradebook: nbgrader would make a new one, which connects and compiles
    every query anew, a dozen times for a submission.
    """
    # A server may end a connection that stays; the next one to use it has a new one.
    engine = create_engine(url, pool_pre_ping=True, **options)
    if engine.dialect.name == "sqlite":

        @event.listens_for(engine, "connect")
        def write_ahead(connection: Any, _: Any) -> None:
            # nbgrader commits forty times for a submission, and each time would wait for the disk.
            # So it waits once in a while; a kill loses nothing, and a power cut nothing but the
            # last grades, which a rerun finds missing.
            connection.execute("PRAGMA synchronous=NORMAL")

    return engine


_in_use: set[Engine] = set()


def _close(gradebook: Gradebook) -> None:
    """End the connection, but leave it to the engine while a folder is open."""
    gradebook.db.remove()
    if gradebook.engine not in _in_use:
        gradebook.engine.dispose()


nbgrader.api.create_engine = _engine
Gradebook.close = _close
# For a new gradebook it starts alembic as a command, which takes seconds and may not be on PATH.
nbgrader.api.get_alembic_version = lambda: ScriptDirectory(ALEMBIC_DIR).get_current_head()


LONGEST_ID = 120  # characters that nbgrader's tables have room for, and bytes that a folder has


def nbgrader_id(student: str) -> str:
    """The student's name as nbgrader can bear it: it takes names for patterns and strips spaces."""
    pattern = r"[][*?%\x00-\x1f]|^\s|\s$"
    found = re.sub(pattern, lambda match: urllib.parse.quote(match[0], safe=""), student)
    if len(found.encode()) > LONGEST_ID:
        digest = hashlib.sha256(student.encode()).hexdigest()[:16]
        found = found.encode()[: LONGEST_ID - 17].decode("utf-8", "ignore") + f"~{digest}"
    return found


class _Caught(logging.Handler):
    """Finds, among the errors that nbgrader logs and goes on, the disk's and the database's.

    They are no fault of the submission that was being graded: the run has to end.
    """

    nobodys: BaseException | None = None

    def emit(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        while error is not None:
            if isinstance(error, OperationalError) or (
                isinstance(error, OSError) and error.errno in DISK
            ):
                self.nobodys = error
            error = error.__cause__ or error.__context__


@contextmanager
def _connected(url: str) -> Iterator[None]:
    """Stay connected meanwhile; SQLite writes ahead, and has the gradebook in one file again."""
    engine = _engine(url, echo=False, future=True)
    sqlite = engine.dialect.name == "sqlite"
    if sqlite:
        with engine.connect() as first:
            first.exec_driver_sql("PRAGMA journal_mode=WAL")
    _in_use.add(engine)
    try:
        yield
    finally:
        _in_use.discard(engine)
        engine.dispose()
    if sqlite:
        with suppress(OperationalError), engine.connect() as last:  # who has it open may go on
            last.exec_driver_sql("PRAGMA busy_timeout=1000")
            last.exec_driver_sql("PRAGMA journal_mode=DELETE")
        engine.dispose()


class CourseFolder:
    """nbgrader's course in `out/course`: source, release, submitted, autograded and feedback."""

    def __init__(self, out: Path, db_url: str = "", sandbox: str = "auto") -> None:
        self.out = out
        self.settings: dict[str, Any] = {"db_url": db_url, "sandbox": sandbox}
        self.root = out / "course"
        self.releases: dict[str, bytes] = {}
        self._held = ExitStack()

    def __enter__(self) -> "CourseFolder":
        return self

    def __exit__(self, *error: object) -> None:
        self._held.close()

    def prepare(self, lessons: dict[str, Lesson]) -> None:
        """Make the folder and register the assignments; what is already there stays."""
        if not (Path(sys.prefix) / "share/jupyter/kernels" / kernels.CPU).exists():
            kernels.install()
        try:
            (self.root / "exchange").mkdir(parents=True, exist_ok=True)
            more = "".join(f", {key}={value!r}" for key, value in self.settings.items() if value)
            write_whole(self.root / "nbgrader_config.py", FILE.format(more=more), private=True)
        except OSError as error:
            raise CourseError(f"Cannot write to {self.out}: {error.strerror}.") from error
        handler = logging.FileHandler(self.root / "nbgrader.log", encoding="utf-8")
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        log = logging.getLogger("autograder.grading")
        log.setLevel(logging.INFO)
        logging.raiseExceptions = False  # a log that can't be written is not worth a traceback
        for one in (log, nbgrader.api.app_log, logging.getLogger("py.warnings")):
            one.handlers = [handler]
            one.propagate = False
        config = Config()
        configure(config, str(self.root / "nbgrader_config.py"), **self.settings)
        self.parent = LoggingConfigurable(config=config, log=log)
        self.db_url = str(config.CourseDirectory.db_url)
        self._open()
        self._held.enter_context(_connected(self.db_url))
        for stem, lesson in lessons.items():
            self._release(stem, lesson)

    def _open(self) -> None:
        """Make the gradebook where there is none."""
        try:
            with Gradebook(self.db_url):
                pass
        except ImportError as error:
            raise CourseError(
                f"The gradebook's database needs the package {error.name}, which is not installed. "
                "For PostgreSQL: `pip install 'block-by-block[postgresql]'`."
            ) from error
        except ArgumentError as error:
            raise CourseError(
                "--db takes a URL like postgresql+psycopg2://user:password@host/database or "
                f"sqlite:////folder/gradebook.db ({error})."
            ) from error

    def _release(self, stem: str, lesson: Lesson) -> None:
        source = self.root / "source" / stem / f"{stem}.ipynb"
        text = nbformat.writes(builder.source(lesson)) + "\n"
        self.releases[stem] = text.encode()
        if source.exists() and source.read_bytes() == self.releases[stem]:
            with Gradebook(self.db_url) as gradebook:
                try:
                    gradebook.find_notebook(stem, stem)
                    return
                except MissingEntry:
                    pass  # the gradebook was removed, or the last run ended before this line
        source.parent.mkdir(parents=True, exist_ok=True)
        write_whole(source, text)
        try:
            self._convert(GenerateAssignment, stem, ".")
        except NbGraderException as error:
            raise CourseError(
                f"nbgrader could not make the assignment {stem}; {self.root / 'nbgrader.log'} says "
                "why. If the lesson's cells have changed since the last run, grade into a new "
                "folder."
            ) from error

    def _convert(self, converter: type[BaseConverter], stem: str, student: str) -> None:
        """Run one of nbgrader's steps for one student (or for ".", the release)."""
        folder = CourseDirectory(parent=self.parent)
        folder.assignment_id = stem
        folder.student_id = student
        step = converter(coursedir=folder, parent=self.parent)
        step.force = True
        caught = _Caught(logging.ERROR)
        self.parent.log.addHandler(caught)
        logging.captureWarnings(True)  # SQLAlchemy's about nbgrader's queries go to the log
        try:
            step.start()
        except NbGraderException:
            if caught.nobodys:
                raise caught.nobodys from None
            raise
        finally:
            logging.captureWarnings(False)
            self.parent.log.removeHandler(caught)

    def submitted(self, student: str, stem: str) -> Path:
        return self.root / "submitted" / nbgrader_id(student) / stem / f"{stem}.ipynb"

    def feedback(self, student: str, stem: str) -> Path:
        return self.out / "feedback" / student / f"{stem}.html"

    def fingerprint(self, lesson: Lesson, data: bytes, seed: int | None) -> str:
        """Changes when the submission, the lesson, its checks or mistakes, or the seed change."""
        digest = hashlib.sha256(self.releases[lesson.stem])
        for room in ("checks", "mistakes"):
            digest.update((ROOT / "autograder" / room / f"{lesson.name}.py").read_bytes())
        digest.update(data)
        digest.update(str(seed).encode())
        return digest.hexdigest()

    def record(self, student: str, stem: str, judged: Judged) -> str:
        """Have nbgrader enter a judged submission and write its feedback; a sentence on failure."""
        name = nbgrader_id(student)
        target = self.submitted(student, stem)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(judged.notebook, "utf-8")
        with Gradebook(self.db_url) as gradebook:
            known = gradebook.update_or_create_student(name)
            # What the formgrader lists; what is missing it would print as None.
            known.last_name = known.last_name or student[:LONGEST_ID]
            known.first_name, known.email = known.first_name or "", known.email or ""
            gradebook.db.commit()
        handed_over[name, stem] = judged
        try:
            self._convert(Autograde, stem, name)
            self._convert(GenerateFeedback, stem, name)
        except NbGraderException:
            return "nbgrader could not grade it; course/nbgrader.log says why."
        finally:
            handed_over.pop((name, stem), None)
        page = self.root / "feedback" / name / stem / f"{stem}.html"
        target = self.feedback(student, stem)
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{target.name}.partial")
        shutil.copyfile(page, partial)
        os.replace(partial, target)
        return ""

    def zero(self, student: str, stem: str) -> None:
        """No points in the gradebook for a submission that could not be graded."""
        with Gradebook(self.db_url) as gradebook:
            name = nbgrader_id(student)
            gradebook.update_or_create_student(name)
            gradebook.update_or_create_submission(stem, name)
            for grade in gradebook.find_submission_notebook(stem, stem, name).grades:
                grade.auto_score = 0
                grade.needs_manual_grade = False
            gradebook.db.commit()

    def holds(self, student: str, stem: str) -> bool:
        """Whether the grade and the feedback of an earlier run are still there."""
        with Gradebook(self.db_url) as gradebook:
            try:
                gradebook.find_submission(stem, nbgrader_id(student))
            except MissingEntry:
                return False
        return self.feedback(student, stem).exists()

    def score(self, student: str, stem: str) -> tuple[float, float]:
        """Points and maximum as the gradebook has them, changes by hand included."""
        with Gradebook(self.db_url) as gradebook:
            notebook = gradebook.find_submission_notebook(stem, stem, nbgrader_id(student))
            return notebook.score, notebook.max_score
