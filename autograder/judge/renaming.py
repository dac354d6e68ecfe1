"""Names of ours for parameters that an answer may call as it likes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autograder.judge.subject import Link


class Renaming:
    """A link that can call the parameters inside a part of a module by names of ours.

    After {"do": "rename", "parts": ["ffn"]} those inside `ffn` are "ffn.0", "ffn.1" and so on, the
    largest shape first, in descriptions, gradients and what is loaded. So checks find them, and
    known mistakes are recognised, whatever an answer calls them.
    """

    def __init__(self, link: Link):
        self._link = link
        self._names: dict[int, dict[str, str]] = {}  # by handle: {its own: ours}

    def perform(self, request: dict[str, Any]) -> dict[str, Any]:
        target = request["target"]
        if request["do"] == "rename":
            return self._rename(target, request["parts"])
        names = self._names.get(target)
        if not names:
            return self._link.perform(request)
        if request["do"] == "load":
            own = {ours: name for name, ours in names.items()}
            tensors = {own.get(name, name): one for name, one in request["tensors"].items()}
            request = {**request, "tensors": tensors}
        reply = dict(self._link.perform(request))
        if request["do"] == "describe" and not reply["error"] and reply["value"]["module"]:
            rows = {names.get(row[0], row[0]): row[1:] for row in reply["value"]["parameters"]}
            reply["value"] = {
                **reply["value"],
                "parameters": [[name, *row] for name, row in rows.items()],
                "state": _renamed(reply["value"]["state"], names),
            }
        if reply.get("parameters"):
            reply["parameters"] = _renamed(reply["parameters"], names)
        return reply

    def _rename(self, target: int, parts: list[str]) -> dict[str, Any]:
        reply = self._link.perform({"do": "describe", "target": target, "values": False})
        if not reply["error"] and reply["value"]["module"]:
            self._names[target] = {}
            for part in parts:
                shapes: dict[int, Any] = {}  # by storage: a parameter with two names is one
                inside: dict[str, int] = {}
                for name, shape, _, _, _, storage in reply["value"]["parameters"]:
                    if name.startswith(f"{part}."):
                        shapes[storage], inside[name] = shape, storage
                order = sorted(shapes, key=lambda one: shapes[one], reverse=True)
                for name, storage in inside.items():
                    self._names[target][name] = f"{part}.{order.index(storage)}"
        return {**reply, "value": None}


def _renamed(values: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    return {names.get(name, name): one for name, one in values.items()}
