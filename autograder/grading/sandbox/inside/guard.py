"""The parent of one kernel: it lets it start, watches it, speaks for it, and ends all it started.

In namespaces of its own it is process 1 there: what it ends takes everything else along. It runs
none of the student's code, and nothing in there can read or trace it.
"""

from __future__ import annotations

import json
import os
import resource
import secrets
import signal
import socket
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Any

import psutil
import zmq

from autograder.grading.sandbox.inside import linux
from autograder.grading.sandbox.inside.frames import Closed, receive, send
from autograder.grading.sandbox.inside.kernel import serve
from autograder.grading.sandbox.inside.relay import Relay
from autograder.grading.sandbox.limits import FOLDER, Limits

LOOK_SECONDS = 0.1
OWN_BYTES = 1536 * 2**20  # a flood of messages ends the guard, and with it the kernel
PAGE = resource.getpagesize()


@dataclass
class Ended(Exception):
    """The kernel has ended, or has to be ended, because of this."""

    why: str


def guard(link: socket.socket, limits: Limits, confined: bool, connection: Any) -> None:
    """Start a kernel and look after it until `link` closes; never returns.

    With a `connection`, the kernel serves it for Jupyter; else cells come through `link`. The other
    end of `link` is given a line to the agent in the kernel.
    """
    relay_it = connection is None
    if relay_it:
        connection = _private_connection()
    status = 0
    try:
        kernel, line = _start(connection, limits, confined)
        relay = Relay(connection) if relay_it else None
        send(link, b"K")
        socket.send_fds(link, [b"k"], [line.fileno()])
        line.close()
        _Watch(link, limits, kernel).work(relay)
    except Ended as end:
        _say(link, end.why)
    except Closed:
        pass
    except MemoryError:
        _say(link, "It sent more messages than can be read.")
    except BaseException as error:
        status = 1
        _say(link, f"Its kernel could not be looked after ({type(error).__name__}: {error}).")
    _end_all()
    os._exit(status)


def _say(link: socket.socket, why: str) -> None:
    try:
        send(link, b"E", why.encode())
    except Closed:
        pass


def _private_connection() -> dict[str, Any]:
    folder = tempfile.mkdtemp(prefix=".kernel-", dir="/tmp")
    ports = {f"{name}_port": n for n, name in enumerate(("shell", "iopub", "stdin", "hb"), 1)}
    return {
        **ports,
        "control_port": 5,
        "transport": "ipc",
        "ip": f"{folder}/k",
        "key": secrets.token_hex(16),
        "signature_scheme": "hmac-sha256",
        "folder": folder,
    }


def _start(connection: dict[str, Any], limits: Limits, confined: bool) -> tuple[int, socket.socket]:
    """A kernel that is ready for its first request: its process id, and a line to its agent."""
    ours, its = socket.socketpair()
    kernel = os.fork()
    if kernel == 0:
        try:
            _close_all_but(its.fileno())
            serve(dict(connection), limits, confined, its)
        finally:
            os._exit(0)
    its.close()
    ours.settimeout(60)
    if ours.recv(1) != b"r":
        raise Ended(f"Its kernel did not start: {_wait(kernel)}.")
    linux.limit(resource.RLIMIT_DATA, OWN_BYTES)
    _be_deaf()
    if confined:
        linux.dumpable(False)
    if connection["folder"] == FOLDER:
        try:
            flags = linux.REMOUNT | linux.BIND | linux.READ_ONLY | linux.NO_SUID | linux.NO_DEVICES
            linux.mount("none", FOLDER, "", flags)
        except PermissionError:
            pass  # without namespaces of our own; see the README on what is not defended
    ours.sendall(b"g")
    return kernel, ours


def _be_deaf() -> None:
    """Ignore what the kernel's user may send. Process 1 is spared most of it, but not what is sent
    to one of its threads that blocks signals, as those of zmq do.
    """
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
        signal.signal(number, signal.SIG_IGN)


def _close_all_but(handle: int) -> None:
    """Leave the kernel nothing of the guard's: above all not its link to the outside."""
    os.closerange(3, handle)
    os.closerange(handle + 1, os.sysconf("SC_OPEN_MAX"))


def _wait(kernel: int) -> str:
    _, status = os.waitpid(kernel, 0)
    return _describe(status)


def _describe(status: int) -> str:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            return f"killed by signal {number}, {signal.Signals(number).name}"
        except ValueError:
            return f"killed by signal {number}"
    return f"it ended itself with exit status {os.waitstatus_to_exitcode(status)}"


class _Watch:
    def __init__(self, link: socket.socket, limits: Limits, kernel: int) -> None:
        self._link, self._limits, self._kernel = link, limits, kernel
        self._looked = 0.0

    def work(self, relay: Relay | None) -> None:
        """Serve requests until the kernel ends (Ended) or is no longer wanted (Closed)."""
        poller = zmq.Poller()
        poller.register(self._link, zmq.POLLIN)
        if relay is not None:
            poller.register(relay.shell, zmq.POLLIN)
            poller.register(relay.iopub, zmq.POLLIN)
        while True:
            ready = dict(poller.poll(int(LOOK_SECONDS * 1000)))
            if relay is not None:
                for one in (relay.iopub, relay.shell):
                    if one in ready:
                        relay.read(one)
                result = relay.result()
                if result is not None:
                    send(self._link, b"C", json.dumps(result).encode())
            if self._link.fileno() in ready:
                self._request(relay)
            if time.monotonic() > self._looked + LOOK_SECONDS:
                self._look()
                self._looked = time.monotonic()

    def _request(self, relay: Relay | None) -> None:
        kind, body = receive(self._link)
        if kind == b"S":
            os.kill(self._kernel, int(body))
        elif relay is not None and kind == b"R":
            request = json.loads(body)
            relay.run(request["source"], request["room"])

    def _look(self) -> None:
        """Reap what has ended, and see that what runs stays within the limits."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == self._kernel:
                raise Ended(f"The code ended its kernel: {_describe(status)}.")
            if pid == 0:
                break
        mine = _descendants()
        if len(mine) > self._limits.processes:
            raise Ended(f"It started more than {self._limits.processes} processes.")
        if _memory(mine, exactly=False) > self._limits.memory_bytes:
            if _memory(mine, exactly=True) > self._limits.memory_bytes:
                raise Ended(f"It used more than {self._limits.memory_bytes / 2**30:g} GiB.")


def _descendants() -> list[int]:
    if os.getpid() == 1:
        return [int(name) for name in os.listdir("/proc") if name.isdecimal() and name != "1"]
    return [one.pid for one in psutil.Process().children(recursive=True)]


def _memory(pids: list[int], exactly: bool) -> int:
    """Bytes that the processes hold; those they share are counted once where it is `exactly`."""
    if sys.platform != "linux":
        return 0
    total = 0
    for pid in pids:
        try:
            if exactly:
                with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
                    total += next(int(x.split()[1]) * 1024 for x in file if x.startswith("Pss:"))
                    continue
        except (OSError, StopIteration):
            pass  # a process may forbid this look; the other one it can't
        try:
            with open(f"/proc/{pid}/statm", encoding="ascii") as file:
                total += int(file.read().split()[1]) * PAGE
        except OSError:
            pass  # it has ended
    return total


def _end_all() -> None:
    """Kill all descendants, and return when none is left."""
    while True:
        if os.getpid() == 1:
            try:
                os.kill(-1, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for pid in _descendants():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            if not _descendants():
                return
