"""A formula's text, read from the function that computes it."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable
from typing import Any


@functools.cache
def _expression(function: Callable[..., Any]) -> ast.expr:
    tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function)))).body[0]
    assert isinstance(tree, ast.FunctionDef)
    body = [node for node in tree.body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]
    if len(body) != 1 or not isinstance(body[0], ast.Return) or body[0].value is None:
        raise ValueError(f"{tree.name}: a formula is one return of one expression")
    return body[0].value


class _Put(ast.NodeTransformer):
    def __init__(self, inner: dict[str, ast.expr]):
        self.inner = inner

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.inner.get(node.id, node)


@functools.cache
def text(function: Callable[..., Any], **inner: Callable[..., Any]) -> str:
    """The expression that `function` returns, as one line of Python.

    `inner` puts other formulas' expressions in place of parameters: text(training, F=head) is 3 * (2 * B * T * V * d).
    Raises ValueError where the function is more than one return of one expression.
    """
    expression = ast.parse(ast.unparse(_expression(function)), mode="eval").body
    put = _Put({name: _expression(formula) for name, formula in inner.items()})
    return ast.unparse(put.visit(expression))
