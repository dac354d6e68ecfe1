"""Names of ours for parameters that an answer may call as it likes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


class Names(dict[str, str]):
    """{its own: ours} for the parameters inside some parts of a module.

    Those inside `ffn` are "ffn.0", "ffn.1" and so on, the largest shape first. So checks find them,
    and known mistakes are recognised, whatever an answer calls them.
    """

    @classmethod
    def inside(cls, parts: Iterable[str], rows: Sequence[Sequence[Any]]) -> Names:
        """For a description's `rows` of parameters: name, shape, and last the storage."""
        names = cls()
        for part in parts:
            shapes: dict[int, Any] = {}  # by storage: a parameter with two names is one
            inside: dict[str, int] = {}
            for name, shape, *_, storage in rows:
                if name.startswith(f"{part}."):
                    shapes[storage], inside[name] = shape, storage
            order = sorted(shapes, key=lambda one: shapes[one], reverse=True)
            for name, storage in inside.items():
                names[name] = f"{part}.{order.index(storage)}"
        return names

    def of_ours(self, named: dict[str, Any]) -> dict[str, Any]:
        """`named` by its own names, with our names for them."""
        return {self.get(name, name): one for name, one in named.items()}

    def of_its_own(self, named: dict[str, Any]) -> dict[str, Any]:
        """`named` by our names, with its own for them."""
        own = {ours: name for name, ours in self.items()}
        return {own.get(name, name): one for name, one in named.items()}
