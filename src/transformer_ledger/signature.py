"""The settings that a verification takes, read off its `compute` without importing it.

The config's schema describes the verifications that the project ships. One that is added needs no entry there: its
settings are the parameters of its `compute`, with the types of their annotations.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

TYPES = {"int": "integer", "float": "number", "str": "string", "bool": "boolean", "dict": "object"}


def schema(module: Path) -> dict[str, Any]:
    """The JSON Schema of the settings of the verification in the file `module`.

    Parameters behind the `*` are tables that it reads, and `settings` are all settings together: neither is a setting.
    Raises ValueError if the module has no `compute`.
    """
    tree = ast.parse(module.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "compute":
            given = [one for one in node.args.args if one.arg != "settings"]
            fallbacks = [ast.literal_eval(one) for one in node.args.defaults]
            needed = len(given) - len(fallbacks)
            parts = {one.arg: _part(one.annotation, f"`{one.arg}` of `compute`.") for one in given}
            for one, value in zip(given[needed:], fallbacks, strict=True):
                parts[one.arg]["default"] = value
            return {
                "description": (ast.get_docstring(tree) or module.stem).splitlines()[0],
                "type": "object",
                "additionalProperties": False,
                "required": [one.arg for one in given[:needed]],
                "properties": parts,
            }
    raise ValueError(f"{module}: a verification has a function named compute")


def _part(annotation: ast.expr | None, description: str) -> dict[str, Any]:
    """The schema of one parameter; any value where the annotation says nothing that JSON knows."""
    told: dict[str, Any] = {"description": description}
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) in ("list", "Sequence"):
        return {**told, "type": "array", "items": _part(annotation.slice, "An entry.")}
    outer = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    name = ast.unparse(outer) if outer else ""
    return {**told, "type": TYPES[name]} if name in TYPES else told
