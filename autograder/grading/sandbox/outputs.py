"""What a kernel says a cell put out, taken for what it is: anything at all."""

import json
from typing import Any

from nbformat import NotebookNode
from nbformat.v4 import new_output

DEPTH = 30


class Malformed(Exception):
    """This is not what a kernel says."""


def read(body: bytes) -> tuple[list[NotebookNode], bool]:
    """The outputs of a cell and whether it failed."""
    try:
        found = json.loads(body)
        return [_output(one) for one in found["outputs"]], bool(found["failed"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Malformed from error


def _output(found: dict[str, Any]) -> NotebookNode:
    match found["output_type"]:
        case "stream":
            name = "stderr" if found["name"] == "stderr" else "stdout"
            return new_output("stream", name=name, text=_text(found["text"]))
        case "error":
            lines = [_text(line) for line in found["traceback"]]
            return error(_text(found["ename"]), _text(found["evalue"]), lines)
        case "display_data" | "execute_result" as kind:
            data = {_text(mime): _data(mime, value) for mime, value in found["data"].items()}
            return new_output(kind, data=NotebookNode(data))
    raise ValueError("no such output")


def error(name: str, value: str, lines: list[str] | None = None) -> NotebookNode:
    lines = [f"{name}: {value}"] if lines is None else lines
    return new_output("error", ename=name, evalue=value, traceback=lines)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("text was expected")
    # Half of a surrogate pair can't be written to any file.
    return value.encode("utf-8", "replace").decode()


def _data(mime: str, value: Any) -> Any:
    if mime == "application/json" or mime.endswith("+json"):
        return _plain(value, 0)
    return _text("".join(value) if isinstance(value, list) else value)


def _plain(value: Any, depth: int) -> Any:
    if depth > DEPTH:
        raise ValueError("nested too deep")
    if isinstance(value, dict):
        return NotebookNode({_text(key): _plain(one, depth + 1) for key, one in value.items()})
    if isinstance(value, list):
        return [_plain(one, depth + 1) for one in value]
    return _text(value) if isinstance(value, str) else value
