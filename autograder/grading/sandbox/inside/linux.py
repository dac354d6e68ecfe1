"""The few Linux calls that Python has no function for: namespaces, mounts, rights, filters."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import struct

_LIBC = ctypes.CDLL(None, use_errno=True)

NEW_USER, NEW_PID, NEW_NET, NEW_IPC, NEW_UTS, NEW_MOUNTS = (
    0x10000000,
    0x20000000,
    0x40000000,
    0x08000000,
    0x04000000,
    0x00020000,
)
READ_ONLY, NO_SUID, NO_DEVICES, REMOUNT, BIND, RECURSIVE, PRIVATE = (
    1,
    2,
    4,
    32,
    4096,
    16384,
    1 << 18,
)
_DUMPABLE, _SUBREAPER, _NO_NEW_PRIVILEGES, _SECCOMP = 4, 36, 38, 22


def _call(name: str, *arguments: object) -> None:
    if getattr(_LIBC, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    _call("unshare", flags)


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    _call(
        "mount",
        source.encode(),
        target.encode(),
        kind.encode(),
        ctypes.c_ulong(flags),
        options.encode() or None,
    )


def unmount(target: str) -> None:
    _call("umount2", target.encode(), 0)


def _prctl(option: int, value: int, more: object = 0) -> None:
    _call("prctl", option, ctypes.c_ulong(value), more, ctypes.c_ulong(0), ctypes.c_ulong(0))


def dumpable(yes: bool) -> None:
    """Whether other processes of this user may read or trace this one."""
    _prctl(_DUMPABLE, int(yes))


def adopt_orphans() -> None:
    """Become the parent of descendants whose parents end, as process 1 is anyway."""
    _prctl(_SUBREAPER, 1)


def give_up_rights() -> None:
    """No capability, none ever again, and none of the system calls in the lists below."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this thread
    _call("capset", header, (ctypes.c_uint32 * 6)())
    _prctl(_NO_NEW_PRIVILEGES, 1)
    _filter_calls()


# What would make namespaces anew, or hold memory that no limit counts. EPERM is the answer.
_REFUSED = {
    "x86_64": {
        "architecture": 0xC000003E,
        "clone": 56,
        "clone3": 435,
        "refused": {
            "unshare": 272,
            "setns": 308,
            "mount": 165,
            "ptrace": 101,
            "memfd_create": 319,
            "memfd_secret": 447,
            "shmget": 29,
            "mq_open": 240,
            "add_key": 248,
            "keyctl": 250,
            "bpf": 321,
            "userfaultfd": 323,
            "perf_event_open": 298,
            "io_uring_setup": 425,
            # With these a kernel could starve the guard that watches it.
            "setpriority": 141,
            "sched_setaffinity": 203,
            "sched_setattr": 314,
        },
    },
    "aarch64": {
        "architecture": 0xC00000B7,
        "clone": 220,
        "clone3": 435,
        "refused": {
            "unshare": 97,
            "setns": 268,
            "mount": 40,
            "ptrace": 117,
            "memfd_create": 279,
            "memfd_secret": 447,
            "shmget": 194,
            "mq_open": 180,
            "add_key": 217,
            "keyctl": 219,
            "bpf": 280,
            "userfaultfd": 282,
            "perf_event_open": 241,
            "io_uring_setup": 425,
            "setpriority": 140,
            "sched_setaffinity": 122,
            "sched_setattr": 274,
        },
    },
}
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _EPERM, _ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026


def _filter_calls() -> None:
    """Install a seccomp filter; on other processors than the two above there is none."""
    calls = _REFUSED.get(platform.machine())
    if calls is None:
        return
    refused = list(calls["refused"].values())  # type: ignore[attr-defined]
    code = [
        (_LOAD, 0, 0, 4),  # the processor whose table of calls is meant
        (_EQUAL, 1, 0, calls["architecture"]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),  # the number of the call
        (_AT_LEAST, 0, 1, 0x40000000),  # x32 calls, under numbers of their own
        (_RETURN, 0, 0, _ENOSYS),
        (_EQUAL, 0, 1, calls["clone3"]),  # its flags can't be read here; libc then uses clone
        (_RETURN, 0, 0, _ENOSYS),
    ]
    for number in refused:
        code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _EPERM)]
    code += [
        (_EQUAL, 0, 3, calls["clone"]),
        (_LOAD, 0, 0, 16),  # its flags
        (_ANY_BIT, 0, 1, NEW_USER),
        (_RETURN, 0, 0, _EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    packed = b"".join(struct.pack("HBBI", *line) for line in code)
    lines = ctypes.create_string_buffer(packed, len(packed))

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("lines", ctypes.c_void_p)]

    program = Program(len(code), ctypes.addressof(lines))
    _prctl(_SECCOMP, 2, ctypes.byref(program))


def limit(what: int, value: int) -> None:
    """Lower a limit of this process for good; one that is lower already stays."""
    _, hard = resource.getrlimit(what)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(what, (value, value))
