"""Puts a forked process into namespaces of its own, as process 1 of a world with nobody else."""

from __future__ import annotations

import os
from collections.abc import Sequence

from autograder.grading.sandbox.inside import linux
from autograder.grading.sandbox.limits import FOLDER, FOLDERS, Limits


def become(user: int) -> None:
    """Where the warm process is root, be one of the users that nobody else is."""
    if user:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        linux.dumpable(True)  # or /proc/self belongs to root, and nobody could be mapped


def isolate(limits: Limits, keep: Sequence[str], folder: str | None) -> None:
    """Return in a child that is process 1 of its own namespaces; this process itself ends.

    `keep` are the folders below /tmp that the environment lies in. OSError where the system
    forbids it.
    """
    user, group = os.getuid(), os.getgid()
    linux.unshare(
        linux.NEW_USER
        | linux.NEW_PID
        | linux.NEW_NET
        | linux.NEW_IPC
        | linux.NEW_UTS
        | linux.NEW_MOUNTS
    )
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"1000 {user} 1")
    _write("/proc/self/gid_map", f"1000 {group} 1")
    if os.fork():
        os._exit(0)  # the warm process, which is process 1 there, inherits the child
    linux.mount("none", "/", "", linux.RECURSIVE | linux.PRIVATE)
    kept = [(path, os.open(path, os.O_PATH)) for path in keep]
    if folder is not None:
        linux.mount(f"{FOLDERS}/{folder}", FOLDER, "", linux.BIND)
    plain = linux.NO_SUID | linux.NO_DEVICES
    linux.mount("tmpfs", FOLDERS, "tmpfs", plain | linux.READ_ONLY, "size=4k")
    # The kinds of file that cost memory without counting as bytes are counted as inodes.
    room = f"size={limits.tmp_bytes},nr_inodes=20000,mode=1777"
    linux.mount("tmpfs", "/tmp", "tmpfs", plain, room)
    linux.mount("tmpfs", "/dev/shm", "tmpfs", plain, room)
    linux.mount("proc", "/proc", "proc", plain)
    for path, handle in kept:
        os.makedirs(path)
        linux.mount(f"/proc/self/fd/{handle}", path, "", linux.BIND | linux.RECURSIVE)
        os.close(handle)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
