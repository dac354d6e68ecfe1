"""Answers the judge's requests in the student's kernel, through the judge's own agent."""

from __future__ import annotations

from typing import Any

from autograder.judge.agent import Agent
from autograder.judge.messages import decode, encode
from autograder.judge.subject import SECONDS, LocalLink


class Answers:
    """One agent for each object of the notebook that the judge has opened."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self._namespace = namespace
        self._links: dict[str, LocalLink] = {}

    def handle(self, message: bytes) -> bytes:
        """The reply to {"open": name, "ruled_out": [...]} or {"ask": name, "request": {...}}."""
        try:
            request = decode(message)
            if "open" in request:
                name = request["open"]
                known = name in self._namespace
                if known:
                    agent = Agent(self._namespace[name], request["ruled_out"], watch_threads=True)
                    self._links[name] = LocalLink(agent)
                return encode({"known": known})
            return encode(self._links[request["ask"]].perform(request["request"]))
        except KeyboardInterrupt:
            return self.too_long()
        except BaseException as error:
            return encode(failure(type(error).__name__, str(error)[:400]))

    def too_long(self) -> bytes:
        """The reply to a request that was interrupted."""
        return encode(failure("TooLong", f"it ran for more than {SECONDS:g} seconds"))


def failure(kind: str, message: str) -> dict[str, Any]:
    """A reply that says only that the request failed."""
    error = {"type": kind, "bases": [kind], "message": message, "line": None, "code": ""}
    return {"value": None, "error": error, "printed": "", "ruled_out": []}
