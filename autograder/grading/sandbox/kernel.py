"""One submission's kernel, as the process that grades sees it: two sockets with bounded frames.

One leads to the kernel's guard, which runs cells and says when the kernel has ended; the other to
the agent in the kernel itself, from which anything may come.
"""

import contextlib
import math
import select
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from json import dumps, loads
from typing import Any

from nbformat import NotebookNode

from autograder.grading.sandbox import outputs
from autograder.grading.sandbox.agent_line import AgentLine
from autograder.grading.sandbox.inside.frames import Closed, TooLarge, receive, send
from autograder.grading.sandbox.limits import Limits, Stopped
from autograder.judge.agent import MESSAGE_LIMIT, PRINT_LIMIT
from autograder.judge.messages import decode, encode
from autograder.judge.subject import SECONDS
from autograder.judge.values import Unfit, walk

GRACE_SECONDS = 3.0  # between an interrupt and the end
JSON_BYTES = 8 * 2**20  # of a reply without its tensors: Python makes much more of JSON
START_SECONDS = 60.0
END_SECONDS = 10.0
CLOSED_SECONDS = 1.0  # between the end of a kernel's sockets and its own


@dataclass(frozen=True)
class CellRun:
    """What a cell put out, and whether it ended with an error."""

    outputs: list[NotebookNode]
    failed: bool


class Kernel:
    """Runs cells, and asks the objects they define; Stopped once the kernel is gone."""

    def __init__(self, link: socket.socket, limits: Limits) -> None:
        self._link, self._limits = link, limits
        self._left = limits.notebook_seconds
        self._room = limits.output_bytes
        self._stopped: Stopped | None = None
        self._agent: AgentLine | None = None
        self._receive(b"K", time.monotonic() + START_SECONDS, 0, "Its kernel did not start.")
        _, handles, _, _ = socket.recv_fds(link, 1, 1)
        if not handles:
            raise self._stop("Its kernel did not start.")
        self._agent = AgentLine(socket.socket(fileno=handles[0]), limits.reply_bytes)

    def run(self, source: str, name: str = "A cell") -> CellRun:
        """Run a cell; `name` begins the sentence about one that took too long."""
        room = max(0, self._room)
        self._send(b"R", dumps({"source": source, "room": room}).encode())
        # JSON may take six bytes for one, and errors are shown where no room is left.
        limit = 6 * room + 2 * 2**20
        body, late = self._wait(
            lambda deadline: self._receive(b"C", deadline, limit), self._limits.cell_seconds, name
        )
        try:
            found, failed = outputs.read(body)
        except outputs.Malformed:
            raise self._stop("Its kernel sent something that is no cell's output.") from None
        self._room -= len(body)
        if late:
            found.append(outputs.error("TookTooLong", late))
        return CellRun(found, failed or bool(late))

    def open(self, name: str, ruled_out: Iterable[str] = ()) -> bool:
        """Take up the object of this name for `ask`; False where the notebook has none."""
        reply = self._request({"open": name, "ruled_out": list(ruled_out)})
        return reply.get("known") is True

    def ask(self, name: str, request: dict[str, Any]) -> dict[str, Any]:
        """What the agent of `name`, opened before, replies; an error reply where it is unfit."""
        reply = self._request({"ask": name, "request": request})
        if not _is_reply(reply):
            return _failure("Unfit", "something that is no reply")
        reply["printed"] = reply["printed"][:PRINT_LIMIT]
        if reply["error"]:
            for key in ("type", "message", "code"):
                reply["error"][key] = reply["error"][key][:MESSAGE_LIMIT]
        return reply

    def close(self) -> None:
        """End the kernel and all it started, and wait until that is done."""
        deadline = time.monotonic() + END_SECONDS
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_WR)
            self._link.settimeout(END_SECONDS)
            while self._link.recv(2**16) and time.monotonic() < deadline:
                pass  # what it had still to say; the end comes when everything has ended
        self._link.close()
        if self._agent is not None:
            self._agent.link.close()

    def ended(self) -> bool:
        """Whether the kernel is gone, without waiting for anything."""
        if self._stopped is None and select.select([self._link], [], [], 0)[0]:
            with contextlib.suppress(Stopped):
                self._receive(b"", time.monotonic() + 1, 0, "Its kernel is gone.")
        return self._stopped is not None

    def signal(self, number: int) -> None:
        self._send(b"S", str(number).encode())

    def _request(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._stopped or self._agent is None:
            raise self._stopped or Stopped("Its kernel did not start.")
        self._agent.ask(encode(request))
        body, late = self._wait(self._answer, SECONDS + GRACE_SECONDS, "An answer")
        if late:
            return _failure("TooLong", f"it ran for more than {SECONDS:g} seconds")
        if body is None:
            return _failure("Unfit", f"more than {self._limits.reply_bytes / 2**20:g} MiB")
        length = int.from_bytes(body[:8], "big")
        if length > JSON_BYTES:
            return _failure("Unfit", "more than can be looked at")
        try:
            # Half a surrogate pair, which no file could hold, is refused here.
            dumps(loads(body[8 : 8 + length]), ensure_ascii=False).encode()
            reply = walk(decode(body), lambda leaf: leaf)  # bounds the depth
        except Unfit as error:
            return _failure("Unfit", str(error))
        except Exception as error:  # whatever a forged message makes torch raise
            return _failure("Unfit", f"a message that can't be read ({type(error).__name__})")
        return reply if isinstance(reply, dict) else {}

    def _wait(self, next_one: Callable[[float], Any], seconds: float, name: str) -> tuple[Any, str]:
        """What comes until a deadline, and a sentence if it had to be interrupted for that."""
        started = time.monotonic()
        allowed = min(seconds, self._left)
        whole = f"The notebook took more than {self._limits.notebook_seconds:g} s"
        what = f"{name} took more than {seconds:g} s" if allowed == seconds else whole
        try:
            if self._left <= 0:
                raise self._stop(f"{whole} and was stopped.")
            try:
                return next_one(started + allowed), ""
            except TimeoutError:
                self.signal(2)
            try:
                return next_one(time.monotonic() + GRACE_SECONDS), f"{what} and was stopped."
            except TimeoutError:
                sentence = f"{what} and could not be interrupted, so its kernel was ended."
                raise self._stop(sentence) from None
        finally:
            self._left -= time.monotonic() - started

    def _answer(self, deadline: float) -> bytes | None:
        """The agent's next reply, None for one that is too large; or Stopped."""
        agent = self._agent
        assert agent is not None
        while (left := deadline - time.monotonic()) > 0:
            waiting = [agent.link] if agent.waits else []
            ready, _, _ = select.select([agent.link, self._link], waiting, [], left)
            agent.write()
            if agent.link in ready:
                try:
                    reply = agent.read()
                except EOFError:
                    soon = time.monotonic() + CLOSED_SECONDS  # it is about to end, most likely
                    late = "Its code closed what its kernel is asked through."
                    self._receive(b"", soon, 0, late)
                else:
                    if reply is not None:
                        return None if reply == "too large" else reply
            elif self._link in ready:
                self._receive(b"", deadline, 0)
        raise TimeoutError

    def _receive(self, kind: bytes, deadline: float, limit: int, late: str = "") -> bytes:
        """The body of the guard's next frame, or Stopped: when none came in time, if `late`."""
        try:
            found, body = receive(self._link, max(limit, 2**20), deadline)
        except TimeoutError:
            if late:
                raise self._stop(late) from None
            raise
        except Closed:
            raise self._stop("Its kernel is gone.") from None
        except TooLarge:
            raise self._stop("Its kernel sent more than can be read.") from None
        if found == b"E":
            raise self._stop(body[:1000].decode("utf-8", "replace"))
        if found != kind:
            raise self._stop("Its kernel sent something that was not asked for.")
        return body

    def _send(self, kind: bytes, body: bytes) -> None:
        if self._stopped:
            raise self._stopped
        try:
            send(self._link, kind, body)
        except Closed:
            self._receive(b"", time.monotonic() + GRACE_SECONDS, 0, "Its kernel is gone.")

    def _stop(self, sentence: str) -> Stopped:
        self._stopped = Stopped(sentence)
        self.close()
        return self._stopped


def _failure(kind: str, message: str) -> dict[str, Any]:
    error = {"type": kind, "bases": [kind], "message": message, "line": None, "code": ""}
    return {"value": None, "error": error, "printed": "", "ruled_out": []}


def _is_reply(reply: dict[str, Any]) -> bool:
    """Whether the parts that are read without being looked at are what they should be."""
    error = reply.get("error")
    if "value" not in reply or not isinstance(reply.get("printed"), str):
        return False
    ruled_out = reply.get("ruled_out")
    if not isinstance(ruled_out, list) or not all(_is_call(one) for one in ruled_out):
        return False
    if not isinstance(reply.get("parameters") or {}, dict):
        return False
    if error is None:
        return True
    return (
        isinstance(error, dict)
        and all(isinstance(error.get(key), str) for key in ("type", "message", "code"))
        and isinstance(error.get("bases"), list)
        and all(isinstance(base, str) for base in error["bases"])
        and _is_line(error.get("line", math.nan))
    )


def _is_call(one: Any) -> bool:
    return isinstance(one, list) and len(one) == 2 and isinstance(one[0], str) and _is_line(one[1])


def _is_line(value: Any) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))
