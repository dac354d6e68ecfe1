"""The guard's line to the agent in the kernel: requests out, replies in, one at a time.

The kernel is never waited for: one that does not read, or stops in the middle of a reply, keeps the
guard from nothing.
"""

from __future__ import annotations

import socket

from autograder.grading.sandbox.inside.frames import HEADER


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
        self._out += HEADER.pack(b"A", len(message)) + message
        self._asked = True
        self.write()

    @property
    def waits(self) -> bool:
        """Whether some of a request could not be sent yet."""
        return bool(self._out)

    def write(self) -> None:
        """Send as much as the kernel takes."""
        try:
            del self._out[: self.link.send(self._out)]
        except BlockingIOError:
            pass
        except OSError:
            self._out.clear()  # it holds its end no more, which `read` will find

    def read(self) -> tuple[bytes, bytes] | None:
        """Take in what has come: (b"A", reply) once it is whole, (b"L", b"") for one too large.

        What was not asked for is dropped. EOFError when the kernel holds its end no more.
        """
        try:
            part = self.link.recv(2**20)
        except BlockingIOError:
            return None
        except OSError:
            part = b""
        if not part:
            raise EOFError
        left_out = min(self._skip, len(part))
        self._skip -= left_out
        self._in += part[left_out:]
        if not self._asked:
            self._in.clear()
        if len(self._in) < HEADER.size:
            return None
        _, length = HEADER.unpack_from(self._in)
        room = HEADER.size + length
        if length <= self._limit and len(self._in) < room:
            return None
        reply = b"A", bytes(self._in[HEADER.size : room])
        if length > self._limit:
            self._skip = max(0, room - len(self._in))
            reply = b"L", b""
        self._in.clear()
        self._asked = False
        return reply
