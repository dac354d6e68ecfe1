"""The warm process: it has imported what every notebook needs, and forks kernels on request.

python -m autograder.grading.sandbox.inside.zygote ASKED LIFE CONFIG: whoever connects to the socket
ASKED gets a kernel. It runs none of the student's code. When the other end of the socket LIFE
closes it ends, and with it every kernel.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any

from autograder.grading.sandbox.inside import linux
from autograder.grading.sandbox.inside.frames import Closed, receive, send
from autograder.grading.sandbox.inside.isolate import become, isolate
from autograder.grading.sandbox.limits import Limits

COVERED = ("bus", "irq", "sys", "sysrq-trigger")  # bubblewrap covers these in root's /proc
ASKING_SECONDS = 10.0  # between connecting and saying what is wanted


class Zygote:
    def __init__(self, asked: socket.socket, life: socket.socket, config: dict[str, Any]) -> None:
        self._asked, self._life = asked, life
        self._limits = Limits(**config["limits"])
        self._keep = config["keep"]
        self._users = config["users"]  # how many users beside root are mapped here
        self._confined = config["confined"]
        self._started = 0
        self._nested = config["nest"] and self._can_nest()

    def work(self) -> None:
        from autograder.grading.sandbox.inside import warm

        warm.up()
        gc.collect()
        gc.freeze()  # what is here already is shared with every fork, and never garbage
        threads = len(os.listdir("/proc/self/task")) if sys.platform == "linux" else 1
        if threads > 1:
            raise RuntimeError("Something that was imported started a thread; forks would hang.")
        if self._confined:
            linux.dumpable(False)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children that have ended leave no trace
        self._life.sendall(b"n" if self._nested else b"-")
        while True:
            ready, _, _ = select.select([self._asked, self._life], [], [])
            if self._life in ready:
                return
            link, _ = self._asked.accept()
            self._started += 1
            if os.fork() == 0:
                self._asked.close()
                self._life.close()
                self._serve(link)
            link.close()

    def _serve(self, link: socket.socket) -> None:
        """In the fork: become a guard; never returns."""
        from autograder.grading.sandbox.inside.guard import guard

        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            _, body = receive(link, deadline=time.monotonic() + ASKING_SECONDS)
            request = json.loads(body)
        except (Closed, TimeoutError):
            os._exit(1)
        try:
            self._settle(request["folder"])
        except OSError as error:
            send(link, b"E", f"Its kernel got no sandbox of its own ({error}).".encode())
            os._exit(1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        guard(link, self._limits, self._confined, request["connection"])

    def _settle(self, folder: str | None) -> None:
        if sys.platform == "linux":
            linux.dumpable(True)
        become(self._started % self._users + 1 if self._users else 0)
        if self._nested:
            isolate(self._limits, self._keep, folder)
        elif sys.platform == "linux":
            linux.adopt_orphans()

    def _can_nest(self) -> bool:
        """Whether a child can have namespaces of its own; tried, because many things forbid it."""
        for name in COVERED if self._users else ():
            try:
                linux.unmount(f"/proc/{name}")
            except OSError:
                pass  # not covered, by this version
        ours, its = socket.socketpair()
        child = os.fork()
        if child == 0:
            ours.close()
            try:
                become(1 if self._users else 0)
                isolate(self._limits, self._keep, None)
                its.sendall(b"y")
            except OSError as error:
                print(f"No namespaces inside the sandbox: {error}", file=sys.stderr)
            os._exit(0)
        its.close()
        os.waitpid(child, 0)
        return ours.recv(1) == b"y"


if __name__ == "__main__":
    asked, life = (socket.socket(fileno=int(handle)) for handle in sys.argv[1:3])
    Zygote(asked, life, json.loads(sys.argv[3])).work()
    os._exit(0)  # at once: Python's own end takes a second with torch in it
