"""Where kernels come from: a warm process in a sandbox, which forks one for each submission.

The process that grades starts it, and gives its address to the workers, which ask it themselves.
"""

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from autograder.course import CourseError, Lesson
from autograder.grading.sandbox.command import below_tmp, check_sandbox, command, environment
from autograder.grading.sandbox.inside.frames import Closed, send
from autograder.grading.sandbox.kernel import Kernel
from autograder.grading.sandbox.limits import FOLDER, FOLDERS, Limits
from autograder.grading.sandbox.stage import stage

MODULE = "autograder.grading.sandbox.inside.zygote"
START_SECONDS = 120


class Gone(CourseError):
    """The warm process has ended, so there are no more kernels from it."""


class SharedKernels:
    """Kernels from a warm process that another process has started, at `address`."""

    def __init__(self, address: str, limits: Limits) -> None:
        self._address, self.limits = address, limits

    @contextlib.contextmanager
    def kernel(self) -> Iterator[Kernel]:
        """A kernel for one submission; what it has started is ended at the end of the block."""
        with _forked(self._address, None, None) as link:
            kernel = Kernel(link, self.limits)
            try:
                yield kernel
            finally:
                kernel.close()


class KernelSource:
    """Gives kernels for submissions of one lesson; a context manager, to be used by any thread.

    With `warm`, they are forked from one process, each into namespaces of its own; else, or where
    the system allows none inside a sandbox, each has a new sandbox and takes seconds to start.
    """

    def __init__(
        self,
        lesson: Lesson,
        sandbox: Literal["bwrap", "none"] = "bwrap",
        limits: Limits | None = None,
        warm: bool = True,
    ) -> None:
        if os.name != "posix":
            raise CourseError("Grading needs Linux or macOS; on Windows, use its Linux subsystem.")
        if sandbox == "bwrap":
            check_sandbox()
        self.limits = limits or Limits()
        self._confined = sandbox == "bwrap"
        self._warm = warm
        self._lock = threading.Lock()
        self._zygote: _Zygote | None = None
        self._count = 0
        # Not below TMPDIR, whose path may be too long for a socket's name.
        self.folder = Path(tempfile.mkdtemp(prefix="course-", dir="/tmp"))
        self._remove = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self._course, self._folders = self.folder / "course", self.folder / "k"
        self._folders.mkdir()
        stage(self._course, lesson)

    def __enter__(self) -> "KernelSource":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End every kernel and the warm process."""
        with self._lock:
            if self._zygote is not None:
                self._zygote.close()
                self._zygote = None
        self._remove()

    @contextlib.contextmanager
    def kernel(self) -> Iterator[Kernel]:
        """A kernel for one submission; what it has started is ended at the end of the block."""
        with self._started(None) as link:
            kernel = Kernel(link, self.limits)
            try:
                yield kernel
            finally:
                kernel.close()

    @contextlib.contextmanager
    def jupyter_kernel(self, connection: dict[str, Any], folder: Path) -> Iterator[Kernel]:
        """A kernel that serves Jupyter's own client on sockets in a folder from `new_folder`."""
        with self._started(connection, folder.name) as link:
            kernel = Kernel(link, self.limits)
            try:
                yield kernel
            finally:
                kernel.close()

    def new_folder(self) -> Path:
        """A folder for the sockets of one kernel, which it will see as /run/kernel."""
        with self._lock:
            self._count += 1
            folder = self._folders / str(self._count)
        folder.mkdir()
        folder.chmod(0o777)  # its user may be another; folders above keep other people out
        return folder

    def start(self) -> None:
        """Start the warm process, and return while it still imports."""
        with self._lock:
            if self._warm and (self._zygote is None or self._zygote.ended()):
                if self._zygote is not None:
                    self._zygote.close()
                self._zygote = self._new_zygote({FOLDERS: self._folders})

    def address(self) -> str:
        """Where SharedKernels finds the warm process; "" where there can be none."""
        self.start()
        with self._lock:
            if not self._warm or self._zygote is None:
                return ""
            self._zygote.wait_until_ready()
            self._warm = self._zygote.nested or not self._confined
            return self._zygote.address if self._warm else ""

    @contextlib.contextmanager
    def _started(self, connection: Any, folder: str | None = None) -> Iterator[socket.socket]:
        address = self.address()
        own = None
        if not address:
            own = self._new_zygote({FOLDER: self._folders / folder} if folder else {})
            own.wait_until_ready()
        try:
            with _forked(own.address if own else address, connection, folder) as link:
                yield link
        finally:
            if own is not None:
                own.close()

    def _new_zygote(self, writable: dict[str, Path]) -> "_Zygote":
        words = command(self._course, writable, self.limits.tmp_bytes) if self._confined else []
        address = self.folder / secrets.token_hex(4)
        return _Zygote(words, self._course, self.limits, self._warm, str(address))


@contextlib.contextmanager
def _forked(address: str, connection: Any, folder: str | None) -> Iterator[socket.socket]:
    """The link to a new kernel's guard."""
    request = json.dumps({"connection": connection, "folder": folder}).encode()
    with socket.socket(socket.AF_UNIX) as link:
        try:
            link.connect(address)
            send(link, b"N", request)
        except (OSError, Closed) as error:
            raise Gone("The warm process of the sandbox has ended.") from error
        yield link


class _Zygote:
    """The warm process, which forks a kernel for each that connects to its `address`.

    It ends when this process does, since nobody holds the other end of `life` then.
    """

    nested = False

    def __init__(
        self, words: list[str], course: Path, limits: Limits, nest: bool, address: str
    ) -> None:
        confined = bool(words)
        self.address = address
        self._ready = False
        self._life, its_life = socket.socketpair()
        first, count = _spare_users() if confined and os.geteuid() == 0 else (0, 0)
        config = {
            "limits": asdict(limits),
            "keep": below_tmp(),
            "users": count,
            "confined": confined,
            "nest": nest and confined,
        }
        self._log = tempfile.TemporaryFile()
        options: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.DEVNULL,
            "stderr": self._log,
            "start_new_session": True,  # Ctrl-C is for the process that grades
        }
        if not confined:
            options["env"] = {**os.environ, **environment(str(course)), **_own_places()}
        with socket.socket(socket.AF_UNIX) as asked, its_life:
            asked.bind(address)  # in a folder that is closed to other people
            asked.listen(128)
            handles = [asked.fileno(), its_life.fileno()]
            program = [sys.executable, "-m", MODULE, *map(str, handles), json.dumps(config)]
            if count:
                self._process = _start_with_users(words, program, handles, options, first, count)
            else:
                self._process = subprocess.Popen(words + program, pass_fds=handles, **options)

    def wait_until_ready(self) -> None:
        """Wait until it has imported everything; CourseError when it did not start."""
        if self._ready:
            return
        self._life.settimeout(START_SECONDS)
        try:
            said = self._life.recv(1)
        except (TimeoutError, OSError):
            said = b""
        if said not in (b"n", b"-"):
            self.close()
            self._log.seek(0)
            last = self._log.read(100_000).decode("utf-8", "replace").strip().splitlines()[-1:]
            raise CourseError(f"The sandbox did not start. It says: {''.join(last) or 'nothing'}")
        self._ready, self.nested = True, said == b"n"

    def ended(self) -> bool:
        return self._process.poll() is not None

    def close(self) -> None:
        """Let it end by itself, which it does when nobody can ask it any more."""
        self._life.close()
        try:
            self._process.wait(5 if self._ready else 0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _own_places() -> dict[str, str]:
    """Without a sandbox, programs are found and files are kept where they always are."""
    return {name: os.environ[name] for name in ("HOME", "PATH", "USER") if name in os.environ}


def _spare_users() -> tuple[int, int]:
    """The first and the number of user ids that no one has, for root to give to kernels.

    As root a kernel would own root's files and be counted by no limit. (0, 0) where only root is.
    """
    with open("/proc/self/uid_map", encoding="ascii") as file:
        inside, _, count = (int(word) for word in file.read().splitlines()[-1].split())
    number = min(60_000, count // 2)
    return (inside + count - number - 1, number) if number else (0, 0)


def _start_with_users(
    words: list[str],
    program: list[str],
    handles: list[int],
    options: dict[str, Any],
    first: int,
    count: int,
) -> subprocess.Popen:
    """Start bubblewrap as root, in a user namespace that has more users than root."""
    info, info_out = os.pipe()
    ready_in, ready = os.pipe()
    try:
        more = ["--userns-block-fd", str(ready_in), "--info-fd", str(info_out), "--cap-add", "ALL"]
        fds = [*handles, ready_in, info_out]
        process = subprocess.Popen([*words, *more, *program], pass_fds=fds, **options)
        os.close(info_out)
        info_out = -1
        said = b""
        while b"}" not in said:
            part = os.read(info, 1000)
            if not part:
                return process  # it has ended, and what it said is in the log
            said += part
        child = json.loads(said)["child-pid"]
        for name in ("uid_map", "gid_map"):
            with open(f"/proc/{child}/{name}", "w", encoding="ascii") as file:
                file.write(f"0 0 1\n1 {first} {count}\n")
        os.write(ready, b"x")
        return process
    finally:
        for end in (info, info_out, ready_in, ready):
            if end >= 0:
                os.close(end)
