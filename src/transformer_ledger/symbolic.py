"""A formula function as algebra: SymPy → LaTeX and MathML to read, JavaScript to run in the page, degrees.

The functions of `transformer_ledger.formulas` are called with one positive integer symbol for each parameter, so what
is shown and what runs in a browser is the function that computed the ledgers, never a second copy of it.
"""

from __future__ import annotations

import inspect
import unicodedata
from collections.abc import Callable, Mapping
from functools import cache
from html import escape
from typing import Any

import sympy

from transformer_ledger.notation import SYMBOLS

Formula = Callable[..., Any]


@cache
def symbol(name: str) -> sympy.Symbol:
    """The positive integer symbol `name` of the notation; KeyError where the notation has none."""
    return sympy.Symbol(SYMBOLS[name].name, integer=True, positive=True)


def arguments(formula: Formula) -> dict[str, sympy.Symbol]:
    """One symbol for each parameter of `formula`, in the order of its signature."""
    return {name: symbol(name) for name in inspect.signature(formula).parameters}


def expression(formula: Formula) -> sympy.Expr:
    """What `formula` computes, simplified as SymPy likes it: the form for algebra."""
    return sympy.sympify(formula(**arguments(formula)))


def as_written(formula: Formula) -> sympy.Expr:
    """What `formula` computes with terms and factors in the author's order: the form for reading."""
    with sympy.evaluate(False):
        return sympy.sympify(formula(**arguments(formula)))


def degree(formula: Formula, name: str) -> int:
    """Degree of `formula`, a polynomial in `name`, in that symbol. PolynomialError where it is none."""
    return int(sympy.Poly(expression(formula), symbol(name)).degree())


def terms(expr: Any) -> int:
    """Terms of `expr` multiplied out: 0 where it is identically 0."""
    expanded = sympy.expand(expr)
    return 0 if expanded == 0 else len(sympy.Add.make_args(expanded))


def flat(expr: Any) -> Any:
    """`expr` with nested sums and products spread out (a + b) + c → a + b + c, in the order in which they stand."""
    if not expr.args:
        return expr
    args = [flat(arg) for arg in expr.args]
    if isinstance(expr, (sympy.Add, sympy.Mul)):
        kind = type(expr)
        args = [inner for arg in args for inner in (arg.args if isinstance(arg, kind) else (arg,))]
    with sympy.evaluate(False):
        return expr.func(*args)


def arranged(expr: Any, outer: str) -> Any:
    """A polynomial for reading: what `outer` multiplies gathered in one factor, terms of high degree first.

    Raises ValueError where `expr` is not linear in `outer`.
    """
    factor, expanded = symbol(outer), sympy.expand(expr)
    parts = [expanded.coeff(factor, power) for power in (1, 0)]
    if sympy.expand(parts[0] * factor + parts[1] - expanded) != 0:
        raise ValueError(f"not linear in {outer}: {expr}")

    def order(term: Any) -> tuple[int, str]:
        return -sympy.Poly(term, *term.free_symbols).total_degree() if term.free_symbols else 0, str(term)

    inside, outside = (sorted(sympy.Add.make_args(part), key=order) for part in parts)
    with sympy.evaluate(False):
        return flat(sympy.Add(factor * sympy.Add(*inside), *outside))


def latex(expr: Any) -> str:
    """LaTeX of an expression, with the notation's symbols and its own order of terms."""
    names = {s: f"{{{SYMBOLS[s.name].latex}}}" for s in expr.free_symbols if s.name in SYMBOLS}
    return str(sympy.latex(flat(expr), symbol_names=names, order="none"))


def mathml(expr: Any, block: bool = False) -> str:
    """Presentation MathML of an expression in its own order; each symbol carries its name in `data-symbol`."""
    display = ' display="block"' if block else ""
    return f"<math{display}>{_mathml(flat(expr))}</math>"


def identifier(name: str) -> str:
    """MathML of the notation's symbol `name`."""
    base, _, index = (SYMBOLS[name].latex if name in SYMBOLS else name).partition("_")
    if base.startswith("\\"):
        base = unicodedata.lookup(f"GREEK SMALL LETTER {base[1:]}")
    if not index:
        return f'<mi data-symbol="{escape(name)}">{escape(base)}</mi>'
    return f'<msub data-symbol="{escape(name)}"><mi>{escape(base)}</mi><mi>{escape(index.strip("{}"))}</mi></msub>'


def _mathml(expr: Any) -> str:
    """One `mrow`-safe MathML element or run of elements for a flat expression."""
    if expr.is_Integer:
        return f"<mn>{int(expr)}</mn>" if expr >= 0 else f"<mrow><mo>−</mo><mn>{-int(expr)}</mn></mrow>"
    if expr.is_Rational:
        return f"<mfrac><mn>{expr.p}</mn><mn>{expr.q}</mn></mfrac>"
    if expr.is_Symbol:
        return identifier(expr.name)
    if expr.is_Add:
        terms = [_signed(term) for term in expr.args]
        first = ("<mo>−</mo>" if terms[0][0] else "") + terms[0][1]
        return f"<mrow>{first}{''.join(f'<mo>{_MINUS[minus]}</mo>{text}' for minus, text in terms[1:])}</mrow>"
    if expr.is_Mul:
        minus, text = _signed(expr)
        return f"<mrow><mo>−</mo>{text}</mrow>" if minus else text
    if expr.is_Pow:
        if expr.exp.is_Integer and expr.exp < 0:
            return f"<mfrac><mn>1</mn>{_mathml(flat(expr.base**-expr.exp))}</mfrac>"
        return f"<msup>{_factor(expr.base)}{_mathml(expr.exp)}</msup>"
    fences = {sympy.floor: ("⌊", "⌋"), sympy.ceiling: ("⌈", "⌉")}
    for kind, (opening, closing) in fences.items():
        if isinstance(expr, kind):
            return f"<mrow><mo>{opening}</mo>{_mathml(expr.args[0])}<mo>{closing}</mo></mrow>"
    if isinstance(expr, (sympy.Max, sympy.Min)):
        listed = "<mo>,</mo>".join(map(_mathml, expr.args))
        return f"<mrow><mi>{type(expr).__name__.lower()}</mi><mo>(</mo>{listed}<mo>)</mo></mrow>"
    if isinstance(expr, sympy.Piecewise):
        lines = "".join(
            f"<mtr><mtd>{_mathml(piece.expr)}</mtd><mtd>{_case(piece.cond)}</mtd></mtr>" for piece in expr.args
        )
        return f'<mrow><mo>{{</mo><mtable class="cases">{lines}</mtable></mrow>'
    raise NotImplementedError(f"no MathML for {type(expr).__name__}: {expr}")


_MINUS = {True: "−", False: "+"}


def _signed(term: Any) -> tuple[bool, str]:
    """(minus sign?, MathML of the term without it)."""
    if term.is_Integer and term < 0:
        return True, f"<mn>{-int(term)}</mn>"
    if not term.is_Mul:
        return False, _mathml(term)
    minus, above, below = False, [], []
    for factor in term.args:
        if factor.is_Integer and factor < 0:
            minus, factor = not minus, -factor
            if factor == 1:
                continue
        if factor.is_Pow and factor.exp.is_Integer and factor.exp < 0:
            below.append(factor.base if factor.exp == -1 else factor.base**-factor.exp)
        elif factor.is_Rational and not factor.is_Integer:
            above += [sympy.Integer(factor.p)] if factor.p != 1 else []
            below.append(sympy.Integer(factor.q))
        else:
            above.append(factor)
    return minus, f"<mfrac>{_product(above)}{_product(below)}</mfrac>" if below else _product(above)


def _product(factors: list[Any]) -> str:
    if len(factors) < 2:
        return _mathml(factors[0]) if factors else "<mn>1</mn>"
    text = _factor(factors[0])
    for factor in factors[1:]:
        # Two numbers side by side would read as one.
        base = factor.base if factor.is_Pow else factor
        text += ("<mo>·</mo>" if base.is_Number else '<mo lspace=".07em">&#x2062;</mo>') + _factor(factor)
    return f"<mrow>{text}</mrow>"


def _factor(expr: Any) -> str:
    """MathML of `expr` as a factor or base: a sum in parentheses."""
    text = _mathml(expr)
    return (
        f"<mrow><mo>(</mo>{text}<mo>)</mo></mrow>"
        if expr.is_Add or expr.is_Mul or (expr.is_Integer and expr < 0)
        else text
    )


def _case(condition: Any) -> str:
    if condition == sympy.true:
        return "<mtext>otherwise</mtext>"
    sign = {"<=": "≤", ">=": "≥", "==": "=", "!=": "≠", "<": "&lt;", ">": "&gt;"}[condition.rel_op]
    return f"<mrow><mtext>for&#xa0;</mtext>{_mathml(condition.lhs)}<mo>{sign}</mo>{_mathml(condition.rhs)}</mrow>"


def javascript(expr: Any) -> str:
    """Two JavaScript BigInt expressions, `[numerator, denominator]`, whose quotient is exactly `expr`.

    Symbols become identifiers bound to BigInts. `floorDiv(a, b)`, `least(...)` and `greatest(...)` must be in scope.
    Raises NotImplementedError at anything that has no exact integer form, not printing what only looks right.
    """
    numerator, denominator = sympy.fraction(sympy.together(sympy.sympify(expr)))
    return f"[{_integer(numerator)}, {_integer(denominator)}]"


def javascript_function(formula: Formula) -> str:
    """`formula` as a JavaScript arrow function of BigInts returning `[numerator, denominator]`."""
    return f"({', '.join(arguments(formula))}) => {javascript(expression(formula))}"


def _integer(expr: Any) -> str:
    """A JavaScript BigInt expression for an integer-valued `expr` without division outside of floor and ceiling."""
    if expr.is_Integer:
        return f"{int(expr)}n" if expr >= 0 else f"({int(expr)}n)"
    if expr.is_Symbol:
        return str(expr.name)
    if expr.is_Add:
        return "(" + " + ".join(map(_integer, expr.args)) + ")"
    if expr.is_Mul and not any(arg.is_Rational and not arg.is_Integer for arg in expr.args):
        return "(" + " * ".join(map(_integer, expr.args)) + ")"
    if expr.is_Pow and expr.exp.is_Integer and expr.exp > 0:
        return f"({_integer(expr.base)} ** {int(expr.exp)}n)"
    if isinstance(expr, sympy.floor):
        return _floor(expr.args[0])
    if isinstance(expr, sympy.ceiling):
        return f"(-{_floor(-expr.args[0])})"
    if isinstance(expr, (sympy.Max, sympy.Min)):
        return f"{'greatest' if isinstance(expr, sympy.Max) else 'least'}({', '.join(map(_integer, expr.args))})"
    if isinstance(expr, sympy.Piecewise) and expr.args[-1].cond is sympy.true:
        text = _integer(expr.args[-1].expr)
        for piece in reversed(expr.args[:-1]):
            text = f"({_condition(piece.cond)} ? {_integer(piece.expr)} : {text})"
        return text
    raise NotImplementedError(f"no exact integer JavaScript for {type(expr).__name__}: {expr}")


def _floor(inner: Any) -> str:
    numerator, denominator = sympy.fraction(sympy.together(inner))
    return f"floorDiv({_integer(numerator)}, {_integer(denominator)})"


def _condition(condition: Any) -> str:
    relations: Mapping[type, str] = {
        sympy.StrictLessThan: "<",
        sympy.LessThan: "<=",
        sympy.StrictGreaterThan: ">",
        sympy.GreaterThan: ">=",
        sympy.Equality: "===",
        sympy.Unequality: "!==",
    }
    if type(condition) not in relations:
        raise NotImplementedError(f"no JavaScript for the condition {condition}")
    return f"{_integer(condition.lhs)} {relations[type(condition)]} {_integer(condition.rhs)}"
