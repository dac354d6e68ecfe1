"""Reads a submission without running it: what depends on what, and what it calls of torch."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterable
from dataclasses import dataclass, field

from IPython.core.inputtransformer2 import TransformerManager

LARGEST_CELL = 500_000  # characters; a cell beyond it is run, not read


@dataclass
class Cell:
    """What a code cell binds and uses of the notebook's names.

    An `opaque` one has magics, a star import or no Python in it: what it does can't be read.
    """

    tree: ast.Module | None
    binds: set[str] = field(default_factory=set)
    uses: set[str] = field(default_factory=set)
    opaque: bool = False


def read(source: str) -> Cell:
    """Parse a cell, magics and all."""
    if len(source) > LARGEST_CELL:
        return Cell(None, opaque=True)
    try:
        python = TransformerManager().transform_cell(source)
        tree = ast.parse(python)
        table = symtable.symtable(python, "cell", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Cell(None, opaque=True)
    cell = Cell(tree, opaque="get_ipython()" in python)
    _enter(table, cell)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            cell.opaque |= node.names[0].name == "*"
        elif isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            # `ManualLayerNorm.forward = …` changes what ManualLayerNorm is.
            if root := _root(node):
                cell.binds.add(root)
    return cell


def _enter(table: symtable.SymbolTable, cell: Cell) -> None:
    """Add what one scope, and those inside it, bind and use among the notebook's names."""
    top = table.get_type() == "module"
    for symbol in table.get_symbols():
        if top or symbol.is_global():
            if symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace():
                cell.binds.add(symbol.get_name())
            if symbol.is_referenced():
                cell.uses.add(symbol.get_name())
    for child in table.get_children():
        _enter(child, cell)


def needed(cells: list[Cell], names: Iterable[str], answers: Iterable[int]) -> set[int]:
    """Places of the cells that define `names`, the `answers`, and all they depend on by name."""
    wanted = set(names)
    chosen = {place for place, cell in enumerate(cells) if cell.opaque or cell.binds & wanted}
    chosen.update(answers)
    waiting = list(chosen)
    while waiting:
        uses = cells[waiting.pop()].uses
        for place, cell in enumerate(cells):
            if place not in chosen and cell.binds & uses:
                chosen.add(place)
                waiting.append(place)
    return chosen


def ruled_out_call(
    cells: Iterable[Cell], answer: str, names: frozenset[str]
) -> tuple[str, int] | None:
    """The first use of a torch function called one of `names` in the code of `answer`.

    Returns its dotted name and its line in the cell. Read are the definition of `answer` and the
    definitions it uses by name; imports and assignments give the aliases.
    """
    aliases: dict[str, str] = {}
    definitions: dict[str, ast.AST] = {}
    for cell in cells:
        for statement in cell.tree.body if cell.tree else []:
            _note(statement, aliases, definitions)
    seen: set[str] = set()
    waiting = [answer]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if aliases.get(name, "").startswith("torch.") and _last(aliases[name]) in names:
            return aliases[name], getattr(definitions.get(name), "lineno", 0)
        if name not in definitions:
            continue
        local = dict(aliases)
        for node in ast.walk(definitions[name]):
            if isinstance(node, ast.Import | ast.ImportFrom | ast.Assign):
                _note(node, local, {})
        for node in ast.walk(definitions[name]):
            path = _path(node, local)
            if path and path.startswith("torch.") and _last(path) in names:
                return path, getattr(node, "lineno", 0)
            if isinstance(node, ast.Name):
                waiting.append(node.id)
    return None


def _note(node: ast.AST, aliases: dict[str, str], definitions: dict[str, ast.AST]) -> None:
    """Enter what a statement binds: imports and assigned torch names as aliases, the rest."""
    match node:
        case ast.Import(names=names):
            for one in names:
                aliases[one.asname or one.name.split(".")[0]] = (
                    one.name if one.asname else one.name.split(".")[0]
                )
        case ast.ImportFrom(module=str(module), names=names):
            for one in names:
                aliases[one.asname or one.name] = f"{module}.{one.name}"
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            aliases.pop(name, None)
            definitions[name] = node
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            path = _path(value, aliases)
            if path:
                aliases[name] = path
            else:
                aliases.pop(name, None)
            definitions[name] = node


def _path(node: ast.AST, aliases: dict[str, str]) -> str | None:
    """The dotted name that an expression stands for, such as torch.nn.functional.layer_norm."""
    match node:
        case ast.Name(id=name):
            return aliases.get(name)
        case ast.Attribute(value=value, attr=attribute):
            base = _path(value, aliases)
            return f"{base}.{attribute}" if base else None
        case ast.Call(
            func=ast.Name(id="getattr"), args=[value, ast.Constant(value=str(attribute)), *_]
        ):
            base = _path(value, aliases)
            return f"{base}.{attribute}" if base else None
    return None


def _last(path: str) -> str:
    # An operator's overload comes last: torch.ops.aten.native_layer_norm.default
    parts = path.split(".")
    return parts[-2] if parts[-1] == "default" and len(parts) > 1 else parts[-1]


def _root(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None
