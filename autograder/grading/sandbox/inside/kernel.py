"""The process in which a submission's code runs: ipykernel, and an agent for the judge."""

from __future__ import annotations

import asyncio
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
from autograder.grading.sandbox.inside.frames import receive, send
from autograder.grading.sandbox.limits import Limits


class CourseKernel(IPythonKernel):
    """IPython's kernel, as a course needs it."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        assert self.shell is not None
        # Its other modes spend half a minute on the traceback of a deep recursion.
        self.shell.InteractiveTB.set_mode("Plain")
        self.shell.ask_exit = lambda: None  # `quit()` behind an answer ends nothing


class Line:
    """Answers the process that grades between cells, in the thread that runs them."""

    def __init__(self, link: socket.socket, namespace: dict[str, Any]) -> None:
        self._link, self._answers = link, Answers(namespace)
        asyncio.get_event_loop().add_reader(link, self._answer)

    def _answer(self) -> None:
        _, message = receive(self._link)
        try:
            # As for a cell: only meanwhile does an interrupt reach this thread.
            before = signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                reply = self._answers.handle(message)
            finally:
                signal.signal(signal.SIGINT, before)
        except KeyboardInterrupt:
            reply = self._answers.too_long()
        send(self._link, b"A", reply)


def serve(connection: dict[str, Any], limits: Limits, confined: bool, link: socket.socket) -> None:
    """Be a kernel on `connection` until it is shut down, and answer questions that come by `link`.

    The guard, which hands the other end of `link` to the process that grades, lets the first code
    in.
    """
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
    link.sendall(b"r")
    if link.recv(1) != b"g":
        os._exit(1)
    assert app.shell is not None
    line = Line(link, app.shell.user_ns)
    app.start()
    del line


def _reseed() -> None:
    """Forks of one process would otherwise draw the same numbers."""
    random.seed()
    numpy.random.seed()
    torch.seed()
