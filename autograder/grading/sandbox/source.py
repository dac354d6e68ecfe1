"""Where kernels come from: a warm process in a sandbox, which forks one for each submission."""

import contextlib
import json
import os
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
from autograder.grading.sandbox.kernel import Kernel
from autograder.grading.sandbox.limits import FOLDER, FOLDERS, Limits
from autograder.grading.sandbox.stage import stage

MODULE = "autograder.grading.sandbox.inside.zygote"
START_SECONDS = 120


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

    @contextlib.contextmanager
    def _started(self, connection: Any, folder: str | None = None) -> Iterator[socket.socket]:
        request = json.dumps({"connection": connection, "folder": folder}).encode()
        own = None
        with self._lock:
            if self._warm and (self._zygote is None or self._zygote.ended()):
                self._zygote = self._new_zygote({FOLDERS: self._folders})
                self._warm = self._zygote.nested or not self._confined
            zygote = self._zygote if self._warm else None
        if zygote is None:
            writable = {FOLDER: self._folders / folder} if folder else {}
            zygote = own = self._new_zygote(writable)
        try:
            with self._lock:
                link = zygote.fork(request)
            with link:
                yield link
        finally:
            if own is not None:
                own.close()

    def _new_zygote(self, writable: dict[str, Path]) -> "_Zygote":
        words = command(self._course, writable, self.limits.tmp_bytes) if self._confined else []
        return _Zygote(words, self._course, self.limits, self._warm)


class _Zygote:
    """The warm process, and the socket over which it is asked for kernels."""

    def __init__(self, words: list[str], course: Path, limits: Limits, nest: bool) -> None:
        confined = bool(words)
        self._requests, theirs = socket.socketpair()
        first, count = _spare_users() if confined and os.geteuid() == 0 else (0, 0)
        config = {
            "limits": asdict(limits),
            "keep": below_tmp(),
            "users": count,
            "confined": confined,
            "nest": nest and confined,
        }
        program = [sys.executable, "-m", MODULE, str(theirs.fileno()), json.dumps(config)]
        self._log = tempfile.TemporaryFile()
        options: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.DEVNULL,
            "stderr": self._log,
            "start_new_session": True,  # Ctrl-C is for the process that grades
        }
        if not confined:
            options["env"] = {**os.environ, **environment(str(course)), **_own_places()}
        with theirs:
            if count:
                self._process = _start_with_users(words, program, theirs, options, first, count)
            else:
                self._process = subprocess.Popen(
                    words + program, pass_fds=[theirs.fileno()], **options
                )
        self._requests.settimeout(START_SECONDS)
        try:
            ready = self._requests.recv(1)
        except (TimeoutError, OSError):
            ready = b""
        if ready not in (b"n", b"-"):
            self.close()
            self._log.seek(0)
            said = self._log.read(100_000).decode("utf-8", "replace").strip().splitlines()[-1:]
            raise CourseError(f"The sandbox did not start. It says: {''.join(said) or 'nothing'}")
        self.nested = ready == b"n"

    def fork(self, request: bytes) -> socket.socket:
        """The other end of a new kernel's guard."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._requests, [request], [theirs.fileno()])
                # Taken; so that two requests never run into one.
                if self._requests.recv(1) != b"f":
                    raise ConnectionResetError
            except OSError as error:
                ours.close()
                raise CourseError("The warm process of the sandbox has ended.") from error
        return ours

    def ended(self) -> bool:
        return self._process.poll() is not None

    def close(self) -> None:
        """Let it end by itself, which it does when nobody can ask it any more."""
        self._requests.close()
        try:
            self._process.wait(5)
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
    theirs: socket.socket,
    options: dict[str, Any],
    first: int,
    count: int,
) -> subprocess.Popen:
    """Start bubblewrap as root, in a user namespace that has more users than root."""
    info, info_out = os.pipe()
    ready_in, ready = os.pipe()
    try:
        more = ["--userns-block-fd", str(ready_in), "--info-fd", str(info_out), "--cap-add", "ALL"]
        fds = [theirs.fileno(), ready_in, info_out]
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
