"""The process in which a submission's code runs: ipykernel, and a handler for the judge."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import socket
from typing import Any

import numpy
import torch
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp

from autograder.grading.sandbox.inside import linux
from autograder.grading.sandbox.inside.answers import Answers
from autograder.grading.sandbox.limits import Limits


class CourseKernel(IPythonKernel):
    """IPython's kernel, with one more message: `course_request`, answered by the agent."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.shell_handlers["course_request"] = self.course_request
        assert self.shell is not None
        # Its other modes spend half a minute on the traceback of a deep recursion.
        self.shell.InteractiveTB.set_mode("Plain")
        self.shell.ask_exit = lambda: None  # `quit()` behind an answer ends nothing
        self._answers = Answers(self.shell.user_ns)

    async def course_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        assert self.session is not None
        reply = self._answers.handle(bytes(parent["buffers"][0]))
        self.session.send(stream, "course_reply", {}, parent, ident=ident, buffers=[reply])


def serve(connection: dict[str, Any], limits: Limits, confined: bool, guard: socket.socket) -> None:
    """Be a kernel on `connection` until it is shut down; the guard lets the first code in."""
    os.setsid()
    os.chdir("/tmp")
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    _reseed()
    linux.limit(resource.RLIMIT_CORE, 0)
    linux.limit(resource.RLIMIT_DATA, limits.memory_bytes)
    linux.limit(resource.RLIMIT_FSIZE, limits.file_bytes)
    linux.limit(resource.RLIMIT_NOFILE, limits.open_files)
    if confined:
        linux.limit(resource.RLIMIT_NPROC, limits.processes)
        linux.give_up_rights()
    connection.pop("folder")
    path = f"/tmp/.connection-{os.getpid()}.json"
    with open(path, "w", encoding="utf-8") as file:
        json.dump(connection, file)
    app = IPKernelApp.instance(
        connection_file=path, kernel_class=CourseKernel, parent_handle=0, log_level=50
    )
    # Without a history file: it costs a thread and a database, and nobody will read it.
    app.initialize(["--HistoryManager.enabled=False"])
    guard.sendall(b"r")
    if guard.recv(1) != b"g":
        os._exit(1)
    guard.close()
    app.start()


def _reseed() -> None:
    """Forks of one process would otherwise draw the same numbers."""
    random.seed()
    numpy.random.seed()
    torch.seed()
