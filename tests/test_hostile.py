"""A hostile class, judged as it would be: nobody gets a point too many or loses one too few."""

import os
import re
import resource
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import nbformat
import pytest

from autograder.course import CourseError
from autograder.grading import submissions
from autograder.grading.judging import Judged, judge_submission
from autograder.grading.sandbox import KernelSource, Limits, check_sandbox
from tests.hostile import CASES, LESSON, POINTS, SECRET, VARIABLE, Case, Work, World

KINDS = (
    "cheating",
    "forging",
    "ruled_out",
    "breaking_out",
    "exhausting",
    "overloading",
    "dying",
    "damaged",
    "honest",
)
for kind in KINDS:
    import_module(f"tests.hostile.{kind}")

LIMITS = Limits(
    cell_seconds=5,
    notebook_seconds=40,
    memory_bytes=2**30,
    processes=40,
    file_bytes=8 * 2**20,
    tmp_bytes=32 * 2**20,
    output_bytes=200_000,
    reply_bytes=16 * 2**20,
)
SEED = 20_031
AT_A_TIME = 3
HANGS = "hangs"  # the known fault of a submission that is not tried, for that reason
LONGEST = 100  # seconds; three kernels and nothing but waiting
MEMORY = 2**30  # bytes that the judging process may grow by, all submissions together


def _why_not() -> str:
    try:
        check_sandbox()
    except CourseError as error:
        return str(error)
    return ""


WHY_NOT = _why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "the sandbox works")


@pytest.fixture(scope="module")
def listener() -> Iterator[tuple[int, list[str]]]:
    """A port of this machine, also as an abstract socket's name, and who has called."""
    calls: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as other:
        port = server.getsockname()[1]
        other.bind(f"\0hostile-{port}")
        other.listen()

        def answer(one: socket.socket) -> None:
            while True:
                try:
                    one.accept()
                except OSError:
                    return
                calls.append("somebody")

        for one in (server, other):
            threading.Thread(target=answer, args=(one,), daemon=True).start()
        yield port, calls


@pytest.fixture(scope="module")
def world(
    listener: tuple[int, list[str]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("outside"), listener[0])
    world.other.parent.mkdir(parents=True)
    work = Work(world.other, world)
    work.after("layer_norm", f"# {SECRET}")
    work.finish()
    world.gradebook.write_text("grades", "utf-8")
    yield world


@pytest.fixture(scope="module")
def source() -> Iterator[KernelSource]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, SECRET)
        with KernelSource(LESSON, "bwrap", LIMITS) as source:
            yield source


class Class:
    """Judges some submissions at a time, in the order in which they are asked for."""

    def __init__(self, cases: list[Case], folder: Path, world: World, source: KernelSource) -> None:
        self.world, self.source, self.folder = world, source, folder
        self.pool = ThreadPoolExecutor(AT_A_TIME)
        self.judged: dict[str, Future[tuple[Judged, float]]] = {
            f"{case.kind}-{case.name}": self.pool.submit(self._judge, case) for case in cases
        }

    def tag(self, case: Case) -> str:
        return f"98{self.world.port}{CASES.index(case):03}"

    def _judge(self, case: Case) -> tuple[Judged, float]:
        folder = self.folder / case.kind / case.name
        folder.mkdir(parents=True)
        work = Work(folder / f"{LESSON.stem}.ipynb", self.world, self.tag(case))
        case.make(work)
        path = work.finish()
        started = time.monotonic()
        judged = judge_submission(path, LESSON, self.source, SEED)
        return judged, time.monotonic() - started


@pytest.fixture(scope="module")
def together(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    world: World,
    source: KernelSource,
) -> Iterator[Class]:
    selected = {one.name for one in request.session.items if one.path == request.path}
    wanted = [
        one
        for one in CASES
        if f"test_submission[{one.kind}-{one.name}]" in selected and one.known != HANGS
    ]
    together = Class(wanted, tmp_path_factory.mktemp("class"), world, source)
    yield together
    together.pool.shutdown(cancel_futures=True)


def parameter(case: Case) -> object:
    marks = []
    if case.known:
        run = case.known != HANGS
        marks.append(pytest.mark.xfail(strict=True, reason=case.known, run=run))
    return pytest.param(case, id=f"{case.kind}-{case.name}", marks=marks)


def processes_with(word: str) -> list[str]:
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            command = Path("/proc", name, "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if word in command:
            found.append(command)
    return found


@pytest.mark.parametrize("case", [parameter(case) for case in CASES])
def test_submission(case: Case, together: Class, listener: tuple[int, list[str]]) -> None:
    judged, seconds = together.judged[f"{case.kind}-{case.name}"].result()
    said = " ".join(judged.flags + judged.notes)
    assert {name: judged.scores.get(name, 0) for name in POINTS} == case.points, said
    assert case.flagged in (None, bool(judged.flags)), said
    assert re.search(case.says, said), said
    assert seconds < LONGEST
    # Whatever came back, it can be written to files, and is a notebook.
    (judged.notebook + said).encode()
    assert len(nbformat.reads(judged.notebook, 4).cells) > 0
    assert SECRET not in judged.notebook + said
    assert together.world.untouched() and not listener[1]
    assert processes_with(together.tag(case)) == []


def test_there_are_enough_of_them() -> None:
    assert len(CASES) >= 75 and {case.kind for case in CASES} == set(KINDS)
    assert all(case.make.__doc__ for case in CASES)
    names = [(case.kind, case.name) for case in CASES]
    assert len(names) == len(set(names))


def test_memory_does_not_grow(together: Class) -> None:
    """The last but for what it runs itself: the judging process stays of a usual size."""
    for one in together.judged.values():
        one.exception()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 < 2 * MEMORY


PLACES = """
import builtins, os, site
places = ["/tmp", "/dev/shm", ".", os.path.expanduser("~"), *site.getsitepackages(), "/course",
          "/run/kernel", "/run/kernels", "/var/tmp", "/tmp/.ipython/profile_default/startup"]
names = ["sitecustomize.py", "usercustomize.py", "torch.py", "einops.py", "autograder.py", "00.py",
         "infected.pth", "ipython_config.py", "ipython_kernel_config.py"]
files = [f"{place}/{name}" for place in places for name in names]
"""
INFECT = """
for path in files:
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        open(path, "a").write("import builtins; builtins.hostile_infection = True")
    except OSError:
        pass
torch.layer_norm = None
builtins.hostile_infection = True
"""
LOOK = """
found = [one for one in files if os.path.exists(one) and "hostile_infection" in open(one).read()]
print("look:", found, hasattr(builtins, "hostile_infection"), torch.layer_norm is None)
"""


def test_a_submission_leaves_nothing_to_the_next(
    tmp_path: Path, world: World, source: KernelSource
) -> None:
    for name, code in (("one", INFECT), ("other", LOOK)):
        work = Work(tmp_path / f"{name}.ipynb", world)
        work.first(PLACES + code)
        judged = judge_submission(work.finish(), LESSON, source, SEED)
    assert judged.scores == POINTS and not judged.flags
    assert "look: [] False False" in judged.notebook


@pytest.mark.skipif(sys.platform != "linux", reason="names of bytes")
def test_names_of_people_and_files(tmp_path: Path, world: World) -> None:
    """Every student has one line, whatever the name; nobody hands in another's file."""

    def hand_in(*parts: str) -> Path:
        path = tmp_path.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}", "utf-8")
        return path

    stem = LESSON.stem
    hand_in("plain", f"{stem}.ipynb")
    hand_in("nested", stem, f"{stem}.ipynb")
    for student in ('Žofia "Zo", [2] 张', "=cmd|' -C calc'!A0", "-rf", "a\nb", " "):
        hand_in(student, f"{stem} (1).ipynb")
    hand_in("two", f"{stem}-Copy1.ipynb")
    os.utime(hand_in("two", f"{stem} (2).ipynb"), (2e9, 2e9))
    (tmp_path / os.fsdecode(b"\xff\xfe")).mkdir()
    (tmp_path / "nothing").mkdir()
    (tmp_path / "folder" / f"{stem}.ipynb").mkdir(parents=True)
    (tmp_path / "file.txt").write_text("")
    found = {one.student: one for one in submissions.find(tmp_path)}
    assert len(found) == len([one for one in tmp_path.iterdir() if one.is_dir()])
    assert "two" in found and "the newest of 2 copies" in found["two"].note
    read = [one.student for one in found.values() if one.path]
    assert len(read) == 8, read
    "".join(found).encode()


@pytest.mark.parametrize("place", ["file", "folder"])
def test_no_link_leads_to_another(place: str, tmp_path: Path, world: World) -> None:
    """Of a file, and of the lesson's folder."""
    (tmp_path / "honest").mkdir()
    (tmp_path / "honest" / f"{LESSON.stem}.ipynb").write_text("{}")
    link = {
        "file": tmp_path / "cheat" / f"{LESSON.stem}.ipynb",
        "folder": tmp_path / "cheat" / LESSON.stem,
    }[place]
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(world.other if place == "file" else world.other.parent)
    cheat = next(one for one in submissions.find(tmp_path) if one.student == "cheat")
    if cheat.path is not None:
        with pytest.raises(submissions.Unreadable, match="link to a file outside"):
            submissions.load(cheat.path, cheat.home)
