"""Reads a submission without running it: what depends on what, and what it calls of torch."""

from __future__ import annotations

import ast
import re
import symtable
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

LARGEST_CELL = 100_000  # characters; a cell beyond it is run, not read
MAGIC = re.compile(r"^[ \t]*(?:[%!?].*|.*\?)$", re.MULTILINE)
JUDGE = re.compile(
    r"autograder\s*\.\s*(?:judge|grading)|torch\s*\.\s*_C\b|\w*_profiler_legacy|_python_dispatch"
    r"|sys\s*\.\s*modules"
)
REACHES_ALL = {"eval", "exec", "globals", "locals", "vars", "setattr", "get_ipython"}


@dataclass
class Cell:
    """What a code cell binds, changes and uses of the notebook's names; `imports` are bound too.

    An `opaque` one has magics, a star import, code made at run time, or no Python in it: what else
    it does can't be read.
    """

    tree: ast.Module | None
    binds: set[str] = field(default_factory=set)
    changes: set[str] = field(default_factory=set)
    imports: set[str] = field(default_factory=set)
    uses: set[str] = field(default_factory=set)
    opaque: bool = False


def read(source: str) -> Cell:
    """Parse a cell; lines with magics are left out, and the body of a cell magic is read."""
    if len(source) > LARGEST_CELL:
        return Cell(None, opaque=True)
    for text in (source, MAGIC.sub("", source)):
        cell = _parse(text)
        if cell is not None:
            cell.opaque |= text != source
            return cell
    return Cell(None, uses=set(re.findall(r"\w+", source)), opaque=True)


def names_the_judge(source: str) -> str | None:
    """The first words in a cell that only someone has a use for who meddles with the judge."""
    found = JUDGE.search(source)
    return found[0] if found else None


def _parse(source: str) -> Cell | None:
    try:
        with warnings.catch_warnings(action="ignore"):  # the student's, about the student's code
            tree = ast.parse(source)
            table = symtable.symtable(source, "cell", "exec")
        cell = Cell(tree)
        _enter(table, cell)
        for node in ast.walk(tree):
            cell.changes.update(_changed(node))
            if isinstance(node, ast.ImportFrom):
                cell.opaque |= node.names[0].name == "*"
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                # `@register` may put the definition anywhere it can reach.
                cell.opaque |= bool(node.decorator_list)
        cell.opaque |= bool(cell.uses & REACHES_ALL)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return cell


def _changed(node: ast.AST) -> Iterator[str]:
    """Names whose objects a statement changes without binding them."""
    match node:
        case ast.Attribute(ctx=ast.Store()) | ast.Subscript(ctx=ast.Store()):
            # `ManualLayerNorm.forward = ...` changes what ManualLayerNorm is.
            roots = [_root(node)]
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="manual_seed"))):
            return  # every demo begins so, and the judge draws from seeds of its own
        case ast.Expr(value=ast.Call(func=ast.Attribute() as method)):
            roots = [_root(method)]  # `table.append(1)`
        case _:
            return
    yield from (root for root in roots if root)


def _enter(table: symtable.SymbolTable, cell: Cell) -> None:
    """Add what one scope, and those inside it, bind and use among the notebook's names."""
    top = table.get_type() == "module"
    for symbol in table.get_symbols():
        if top or symbol.is_global():
            if symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace():
                cell.binds.add(symbol.get_name())
            if symbol.is_imported():
                cell.imports.add(symbol.get_name())
            if symbol.is_referenced():
                cell.uses.add(symbol.get_name())
    for child in table.get_children():
        _enter(child, cell)


def needed(cells: list[Cell], names: Iterable[str], answers: Iterable[int]) -> set[int]:
    """Places of the cells that define `names`, the `answers`, and all they depend on by name."""
    binding: dict[str, set[int]] = {}
    for place, cell in enumerate(cells):
        for name in cell.binds | cell.changes:
            binding.setdefault(name, set()).add(place)
    chosen = {place for place, cell in enumerate(cells) if cell.opaque}
    chosen.update(answers, *(binding.get(name, ()) for name in names))
    waiting = list(chosen)
    while waiting:
        for name in cells[waiting.pop()].uses:
            fresh = binding.pop(name, set()) - chosen
            chosen |= fresh
            waiting += fresh
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
    parts: list[str] = []
    while len(parts) < 10:
        match node:
            case ast.Name(id=name):
                base = aliases.get(name)
                return ".".join([base, *reversed(parts)]) if base else None
            case ast.Attribute(value=value, attr=attribute):
                node = value
            case ast.Call(
                func=ast.Name(id="getattr"), args=[value, ast.Constant(value=str(attribute)), *_]
            ):
                node = value
            case _:
                return None
        parts.append(attribute)
    return None


def _last(path: str) -> str:
    # An operator's overload comes last: torch.ops.aten.native_layer_norm.default
    parts = path.split(".")
    return parts[-2] if parts[-1] == "default" and len(parts) > 1 else parts[-1]


def _root(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None
