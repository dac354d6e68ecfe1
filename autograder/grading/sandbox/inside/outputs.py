"""What a cell put out, as a notebook keeps it, and no more of it than there is room for."""

from __future__ import annotations

import json
from typing import Any

OVERHEAD = 100  # what an output costs beside its text
ERROR_ROOM = 20_000  # an error is shown even where there is no room left,
MOST_ERRORS = 20  # and no more than these of one cell
# The messages that are outputs, and what each has to have.
NEEDED: dict[str, dict[str, type]] = {
    "stream": {"name": str, "text": str},
    "display_data": {"data": dict},
    "update_display_data": {"data": dict},
    "execute_result": {"data": dict},
    "error": {"ename": str, "evalue": str, "traceback": list},
    "clear_output": {},
}


class Outputs:
    """Outputs in order, streams merged; what exceeds `room` bytes is left out, and it says so."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._items: list[dict[str, Any]] = []
        self._displays: dict[str, dict[str, Any]] = {}
        self._cut = self._clear = False
        self._errors = 0

    def add(self, kind: str, content: dict[str, Any]) -> None:
        """Take in a message; ValueError for one that no kernel sends."""
        needed = NEEDED.get(kind)
        if needed is None:
            return
        if not all(isinstance(content.get(key), type) for key, type in needed.items()):
            raise ValueError(f"a {kind} without {', '.join(needed)}")
        if kind == "clear_output":
            self._clear = True
            if content.get("wait"):
                return
        if self._clear:
            self._items.clear()
            self._clear = False
        if kind == "stream":
            self._stream(content["name"], content["text"])
        elif kind == "error":
            self._error(content)
        elif kind == "update_display_data":
            self._update(content)
        elif kind != "clear_output" and self._fits(content["data"]):
            item = {"output_type": kind, "data": content["data"]}
            self._items.append(item)
            self._displays[str(content.get("transient", {}).get("display_id"))] = item

    def _update(self, content: dict[str, Any]) -> None:
        item = self._displays.get(str(content.get("transient", {}).get("display_id")))
        if item is not None and self._fits(content["data"]):
            item["data"] = content["data"]

    def _fits(self, data: Any) -> bool:
        size = len(json.dumps(data)) + OVERHEAD
        if size > self._room:
            self._cut = True
            return False
        self._room -= size
        return True

    def _stream(self, name: str, text: str) -> None:
        last = self._items[-1] if self._items else {}
        if last.get("name") != name:
            last = {"output_type": "stream", "name": name, "text": []}
            if self._room < OVERHEAD:
                self._cut = True
                return
            self._room -= OVERHEAD
            self._items.append(last)
        part = text[: self._room]
        while len(part.encode("utf-8", "replace")) > self._room:
            part = part[: len(part) // 2]
        self._cut = self._cut or len(part) < len(text)
        self._room -= len(part.encode("utf-8", "replace"))
        if part:
            last["text"].append(part)

    def _error(self, content: dict[str, Any]) -> None:
        item = {
            "output_type": "error",
            "ename": content["ename"][:200],
            "evalue": content["evalue"][:2000],
            "traceback": [str(line)[:ERROR_ROOM] for line in content["traceback"]][-50:],
        }
        room = max(self._room, ERROR_ROOM)
        if len(json.dumps(item)) > room:
            item["traceback"] = []
        self._room -= min(self._room, len(json.dumps(item)))
        self._errors += 1
        if self._errors <= MOST_ERRORS:
            self._items.append(item)

    def items(self) -> list[dict[str, Any]]:
        said = [
            {**item, "text": "".join(item["text"])} if "text" in item else item
            for item in self._items
        ]
        if self._cut:
            sentence = "The rest of the output was cut: the notebook has put out too much.\n"
            said.append({"output_type": "stream", "name": "stderr", "text": sentence})
        return said
