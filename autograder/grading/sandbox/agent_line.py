"""The line to the agent in a kernel: requests out, replies in, one at a time.

The kernel is never waited for: one that does not read, or stops in the middle of a reply, keeps the
process that grades from nothing.
"""

from __future__ import annotations

import contextlib
import socket
from typing import Literal

from autograder.grading.sandbox.inside.frames import HEADER

PART = 2**18
UNASKED = 64  # parts that are dropped before a question; a kernel may send without end


class AgentLine:
    """Frames over a stream socket whose other end the kernel holds; `link` is to be polled."""

    def __init__(self, link: socket.socket, limit: int) -> None:
        self.link = link
        self._limit = limit
        self._out, self._in = bytearray(), bytearray()
        self._asked = False
        self._skip = 0  # of a reply that is too large, bytes still to come
        link.setblocking(False)

    def ask(self, message: bytes) -> None:
        with contextlib.suppress(EOFError):  # `read` will find it
            for _ in range(UNASKED):
                if not self._take_in():
                    break
        self._in.clear()
        self._out += HEADER.pack(b"A", len(message)) + message
        self._asked = True
        self.write()

    @property
    def waits(self) -> bool:
        """Whether some of a request could not be sent yet."""
        return bool(self._out)

    def write(self) -> None:
        """Send as much of what is left as the kernel takes."""
        if not self._out:
            return
        try:
            del self._out[: self.link.send(self._out)]
        except BlockingIOError:
            pass
        except OSError:
            self._out.clear()  # it holds its end no more, which `read` will find

    def read(self) -> bytes | Literal["too large"] | None:
        """Take in what has come, and the reply once it is whole.

        What was not asked for is dropped. EOFError when the kernel holds its end no more.
        """
        self._take_in()
        if not self._asked:
            self._in.clear()
        if len(self._in) < HEADER.size:
            return None
        _, length = HEADER.unpack_from(self._in)
        room = HEADER.size + length
        if length <= self._limit and len(self._in) < room:
            return None
        reply: bytes | Literal["too large"] = bytes(self._in[HEADER.size : room])
        if length > self._limit:
            self._skip = max(0, room - len(self._in))
            reply = "too large"
        self._in.clear()
        self._asked = False
        return reply

    def _take_in(self) -> bool:
        """Receive a part, if there is one; EOFError at the end."""
        try:
            part = self.link.recv(PART)
        except BlockingIOError:
            return False
        except OSError:
            part = b""
        if not part:
            raise EOFError
        left_out = min(self._skip, len(part))
        self._skip -= left_out
        self._in += part[left_out:]
        return True
