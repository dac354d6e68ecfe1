"""Messages over a stream socket: a kind of one letter, a length, and that many bytes."""

from __future__ import annotations

import socket
import struct
import time

HEADER = struct.Struct(">cQ")


class Closed(Exception):
    """The other side has gone."""


class TooLarge(Exception):
    """The other side announced more than may be read; nothing more of it can be read."""


def send(link: socket.socket, kind: bytes, body: bytes = b"") -> None:
    try:
        link.sendall(HEADER.pack(kind, len(body)) + body)
    except OSError as error:
        raise Closed from error


def receive(
    link: socket.socket, limit: int = 2**40, deadline: float | None = None
) -> tuple[bytes, bytes]:
    """The next message; TimeoutError once `deadline` (time.monotonic) has passed."""
    kind, length = HEADER.unpack(_read(link, HEADER.size, deadline))
    if length > limit:
        raise TooLarge(length)
    return kind, _read(link, length, deadline)


def _read(link: socket.socket, length: int, deadline: float | None) -> bytes:
    found = bytearray()
    while len(found) < length:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            link.settimeout(left)
        try:
            part = link.recv(min(length - len(found), 2**20))
        except TimeoutError:
            raise
        except OSError as error:
            raise Closed from error
        finally:
            if deadline is not None:
                link.settimeout(None)
        if not part:
            raise Closed
        found += part
    return bytes(found)
