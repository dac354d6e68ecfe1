"""Cells run by Jupyter's messages between the guard and the kernel.

The process that grades never speaks to a kernel itself: it sends and gets plain frames of bounded
size. What a kernel can do to a client with messages, it can do only to this relay, which ends with
it.
"""

from __future__ import annotations

import time
from typing import Any

import zmq
from jupyter_client.session import Session

from autograder.grading.sandbox.inside.outputs import Outputs

IDLE_SECONDS = 2.0  # how long the "idle" of a cell may come after its reply


class Relay:
    """One cell at a time."""

    def __init__(self, connection: dict[str, Any]) -> None:
        self._session = Session(key=connection["key"].encode())
        context = zmq.Context()
        at = f"{connection['transport']}://{connection['ip']}-"
        self.shell = context.socket(zmq.DEALER)
        self.iopub = context.socket(zmq.SUB)
        self.iopub.subscribe(b"")
        for link, port in ((self.shell, "shell_port"), (self.iopub, "iopub_port")):
            link.linger = 0
            link.rcvhwm = 20_000
            link.connect(at + str(connection[port]))
        self.iopub.poll(10_000)  # the welcome: from here on nothing is missed
        self._request: str | None = None
        self._outputs = Outputs(0)
        self._reply: dict[str, Any] | None = None
        self._idle = False
        self._replied = 0.0

    def run(self, source: str, room: int) -> None:
        content = {
            "code": source,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": False,
        }
        message = self._session.msg("execute_request", content)
        self._request = message["msg_id"]
        self._outputs = Outputs(room)
        self._reply, self._idle = None, False
        self._session.send(self.shell, message)

    def read(self, link: Any) -> None:
        """Take in what has come on `link`; anything that is not as it should be is dropped."""
        for _ in range(100):
            try:
                _, message = self._session.recv(link)
                if message is None:
                    return
                if message["parent_header"]["msg_id"] == self._request:
                    self._take(link, message)
            except zmq.ZMQError:
                return
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                continue

    def _take(self, link: Any, message: dict[str, Any]) -> None:
        kind, content = message["header"]["msg_type"], message["content"]
        if link is self.shell:
            self._reply, self._replied = message, time.monotonic()
        elif kind == "status":
            self._idle = self._idle or content["execution_state"] == "idle"
        else:
            self._outputs.add(kind, content)

    def result(self) -> dict[str, Any] | None:
        """What the cell came to, once: its outputs, and whether it failed."""
        if self._request is None or self._reply is None:
            return None
        if not self._idle and time.monotonic() < self._replied + IDLE_SECONDS:
            return None  # outputs may still come
        self._request = None
        failed = self._reply["content"].get("status") != "ok"
        return {"outputs": self._outputs.items(), "failed": failed}
