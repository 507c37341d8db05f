"""A formula function as algebra: what is typeset and what runs in the page is what the function computes."""

import inspect
import xml.etree.ElementTree as ElementTree

import pytest
import sympy

from transformer_ledger import symbolic
from transformer_ledger.formulas import (
    activations,
    architecture,
    kv_cache,
    matmul,
    parameters,
    training_compute,
    training_state,
)
from transformer_ledger.notation import SYMBOLS

FORMULAS = {
    f"{module.__name__.rsplit('.', 1)[1]}.{name}": function
    for module in (activations, architecture, kv_cache, matmul, parameters, training_compute, training_state)
    for name, function in vars(module).items()
    if hasattr(function, "__wrapped__") and function.__module__ == module.__name__
}
NO_INTEGER_FORM = {"architecture.rotary_frequency"}  # a power with a fraction in its exponent


def scores(B, T, d):
    return 4 * B * T**2 * d


def sum_of_terms(V, d, h_kv, d_h):
    return 2 * V * d + 2 * d * h_kv * d_h + d_h**2 - 1


@pytest.mark.parametrize("name", FORMULAS)
def test_every_formula_is_typeset_with_each_of_its_symbols(name):
    text = symbolic.mathml(symbolic.as_written(FORMULAS[name]))
    marked = {node.get("data-symbol") for node in ElementTree.fromstring(text).iter()} - {None}
    assert marked == set(inspect.signature(FORMULAS[name]).parameters)
    assert marked <= set(SYMBOLS)


@pytest.mark.parametrize("name", FORMULAS)
def test_what_is_typeset_is_what_is_computed(name):
    written, simplified = symbolic.as_written(FORMULAS[name]), symbolic.expression(FORMULAS[name])
    assert sympy.simplify(written.doit() - simplified) == 0
    assert sympy.simplify(symbolic.flat(written).doit() - simplified) == 0


@pytest.mark.parametrize("name", sorted(set(FORMULAS) - NO_INTEGER_FORM))
def test_every_formula_has_an_exact_javascript_form(name):
    text = symbolic.javascript_function(FORMULAS[name])
    assert "." not in text  # no decimals, no Math.floor


@pytest.mark.parametrize(
    "expr",
    [sympy.Float(0.5), sympy.sqrt(symbolic.symbol("d")), sympy.Sum(symbolic.symbol("i"), (symbolic.symbol("i"), 1, 3))],
)
def test_what_has_no_exact_form_is_refused(expr):
    with pytest.raises(NotImplementedError):
        symbolic.javascript(expr)


def test_terms_stay_in_the_authors_order():
    assert symbolic.latex(symbolic.as_written(scores)) == "4 {B} {T}^{2} {d}"
    assert symbolic.latex(symbolic.as_written(sum_of_terms)) == "2 {V} {d} + 2 {d} {h_{kv}} {d_h} + {d_h}^{2} - 1"


def test_mathml_of_signs_fractions_and_parentheses():
    def plain(formula):
        return "".join(ElementTree.fromstring(symbolic.mathml(symbolic.as_written(formula))).itertext()).replace(
            "\u2062", ""
        )

    assert plain(lambda d, f: d - 2 * f) == "d−2f"
    assert plain(lambda d, f: (d + f) ** 2 * d) == "(d+f)2d"
    assert plain(lambda T: T * (T + 1) / 2) == "T(T+1)2"
    assert plain(lambda d: 3 * 2**d) == "3·2d"
    assert "<mfrac>" in symbolic.mathml(symbolic.as_written(lambda F, G, R: F / (G * R)))


def test_javascript_of_floors_minima_and_pieces():
    m, n = symbolic.symbol("m"), symbolic.symbol("n")
    assert symbolic.javascript(sympy.floor(m / n)) == "[floorDiv(m, n), 1n]"
    assert symbolic.javascript(sympy.ceiling(m / n)) == "[(-floorDiv(((-1n) * m), n)), 1n]"
    assert symbolic.javascript(sympy.Min(m, n) / 3) == "[least(m, n), 3n]"
    assert symbolic.javascript(sympy.Piecewise((m, m < n), (n, True))) == "[(m < n ? m : n), 1n]"


def test_degrees():
    assert symbolic.degree(scores, "T") == 2
    assert symbolic.degree(scores, "B") == 1
    with pytest.raises(sympy.PolynomialError):
        symbolic.degree(kv_cache.ratio_to_multi_head, "h")


def test_a_name_outside_the_notation_is_an_error():
    with pytest.raises(KeyError):
        symbolic.expression(lambda nonsense: nonsense)


def test_a_polynomial_is_arranged_for_reading_and_stays_itself():
    L, d, f, V = map(symbolic.symbol, ("L", "d", "f", "V"))
    made = symbolic.arranged(d + L * (2 * d + 3 * d * f + 4 * d**2) + 2 * V * d, "L")
    assert symbolic.latex(made) == "{L} \\left(3 {d} {f} + 4 {d}^{2} + 2 {d}\\right) + 2 {V} {d} + {d}"
    assert sympy.expand(made.doit() - (d + L * (2 * d + 3 * d * f + 4 * d**2) + 2 * V * d)) == 0
    with pytest.raises(ValueError, match="not linear in L"):
        symbolic.arranged(L**2 * d, "L")
