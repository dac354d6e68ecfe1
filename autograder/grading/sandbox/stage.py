"""The files that a submission sees of the course, copied to where its sandbox shows them."""

import shutil
from pathlib import Path

from autograder.course import ROOT, Lesson, lessons

HERE = Path(__file__).resolve().parent
JUDGE = ("agent", "messages", "renaming", "subject", "values", "watch")


def stage(folder: Path, lesson: Lesson) -> None:
    """Fill `folder`, which becomes PYTHONPATH: no checks, no mistakes, no answers to this lesson.

    The references of the lessons before this one are there, since a lesson builds on them.
    """
    package = folder / "autograder"
    sandbox = package / "grading" / "sandbox"
    shutil.copytree(HERE / "inside", sandbox / "inside", ignore=_no_caches)
    shutil.copy(HERE / "limits.py", sandbox)
    shutil.copy(HERE / "standin" / "__init__.py", package)
    shutil.copy(ROOT / "autograder" / "devices.py", package)
    (package / "judge").mkdir()
    for name in JUDGE:
        shutil.copy(ROOT / "autograder" / "judge" / f"{name}.py", package / "judge")
    for empty in (package / "judge", package / "grading", sandbox):
        (empty / "__init__.py").touch()
    for room in ("visuals", "data"):
        if (lesson.root / room).is_dir():
            shutil.copytree(lesson.root / room, folder / room, ignore=_no_caches)
    (folder / "solutions").mkdir()
    (folder / "solutions" / "__init__.py").touch()
    for one in lessons(lesson.root):
        if one.number < lesson.number:
            shutil.copy(lesson.root / "solutions" / f"{one.name}.py", folder / "solutions")
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


_no_caches = shutil.ignore_patterns("__pycache__")
