"""The formulas themselves: one function for ints, arrays and symbols; its own text; no silent overflow."""

import importlib
import inspect
import itertools
from fractions import Fraction

import numpy as np
import pytest
import sympy

from transformer_ledger.formulas import architecture, kv_cache, matmul, parameters, shim, training_compute
from transformer_ledger.formulas.text import text
from transformer_ledger.notation import SYMBOLS

MODULES = (
    "activations",
    "architecture",
    "conventions",
    "kv_cache",
    "matmul",
    "norms",
    "parameters",
    "training_compute",
    "training_state",
)


def formulas():
    for name in MODULES:
        module = importlib.import_module(f"transformer_ledger.formulas.{name}")
        for function in vars(module).values():
            if hasattr(function, "__wrapped__") and function.__module__ == module.__name__:
                yield pytest.param(function, id=f"{name}.{function.__name__}")


EVERY = list(formulas())


def test_every_formula_module_has_formulas():
    assert len(EVERY) > 70


@pytest.mark.parametrize("function", EVERY)
def test_int_numpy_and_sympy_agree(function):
    names = list(inspect.signature(function).parameters)
    # Multiples of 12, and F one of all of them, so that exact quotients divide.
    grid = [{n: 5040 if n == "F" else 12 * (1 + (3 * i + 5 * j) % 7) for j, n in enumerate(names)} for i in range(5)]
    exact = [function(**point) for point in grid]
    symbols = {name: sympy.Symbol(name, integer=True, positive=True) for name in names}
    symbolic = function(**symbols)
    table = function(**{name: np.array([point[name] for point in grid]) for name in names})
    for point, value, entry in zip(grid, exact, table, strict=True):
        put = symbolic.subs({symbols[name]: number for name, number in point.items()})
        if isinstance(value, float):  # quotients and powers of ints are floats in Python
            assert float(put) == pytest.approx(value) == entry
        else:
            assert (put, entry) == (value, value)
            assert isinstance(value, int)


@pytest.mark.parametrize("function", EVERY)
def test_parameters_are_symbols_and_the_docstring_has_a_unit(function):
    assert set(inspect.signature(function).parameters) <= set(SYMBOLS)
    assert "[" in inspect.getdoc(function)
    assert text(function)
    assert "\n" not in text(function)


def test_text_is_the_function_itself():
    assert text(matmul.query) == "2 * B * T * d * h * d_h"
    assert text(matmul.training, F=matmul.head) == "3 * (2 * B * T * V * d)"

    def two_lines(d):
        d += d
        return 2 * d

    with pytest.raises(ValueError, match="one return"):
        text(two_lines)


def test_text_follows_an_edit(tmp_path, monkeypatch):
    source = inspect.getsource(matmul).replace("2 * B * T * V * d", "5 * B * T * V * d")
    (tmp_path / "edited.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    edited = importlib.import_module("edited")
    assert text(edited.head) == "5 * B * T * V * d" != text(matmul.head)


def test_no_silent_overflow():
    B = np.array([2**20, 2**20], dtype=np.int64)
    exact = matmul.scores(B, 2**20, 2**20, 64, 128)
    assert exact.tolist() == [2 * 2**60 * 64 * 128] * 2
    unguarded = matmul.scores.__wrapped__(B, 2**20, 2**20, 64, 128)
    assert unguarded.tolist() != exact.tolist()  # what the guard is for
    with pytest.raises(OverflowError):
        exact.astype(np.int64)
    assert matmul.scores(np.int64(2**20), 2**20, 2**20, 64, 128) == 2 * 2**60 * 64 * 128


def test_exact_quotient_refuses_to_round():
    with pytest.raises(ArithmeticError, match="does not divide"):
        architecture.equal_budget_width(512)
    with pytest.raises(ArithmeticError, match="does not divide"):
        shim.quotient(np.array([6, 7]), 3)
    assert architecture.equal_budget_width(4 * 768) == 2048
    d, f = sympy.symbols("d f", positive=True)
    assert architecture.equal_budget_width(4 * d) == sympy.Rational(8, 3) * d
    wanted = sympy.Eq(
        architecture.gated_feedforward_parameters(d, f), architecture.plain_feedforward_parameters(d, 4 * d)
    )
    assert sympy.solve(wanted, f) == [sympy.Rational(8, 3) * d]


@pytest.mark.parametrize("T", range(1, 12))
def test_pairs_are_those_of_a_mask(T):
    assert matmul.causal_pairs(T) == sum(1 for q, k in itertools.product(range(T), range(T)) if k <= q)
    for w in range(1, T + 3):
        seen = sum(1 for q, k in itertools.product(range(T), range(T)) if q - w < k <= q)
        assert matmul.windowed_pairs(T, w) == seen


def test_pairs_of_a_long_sequence_with_a_window():
    T, w = sympy.symbols("T w", integer=True, positive=True)
    assert sympy.expand(matmul.windowed_pairs(w + T, w) - (w * (w + 1) / 2 + T * w)) == 0


def test_block_formulas_are_sums_of_the_row_formulas():
    """The texts' closed forms, term by term, from the functions that the ledgers add up."""
    B, T, d, h, f, V, C, L = sympy.symbols("B T d h f V C L", integer=True, positive=True)
    projections = 3 * matmul.query(B, T, d, h, d / h) + matmul.output(B, T, h, d / h, d)
    assert sympy.expand(projections - architecture.attention_projections(B, T, d)) == 0
    attention = matmul.scores(B, T, T, h, d / h) + matmul.values(B, T, T, h, d / h)
    assert sympy.expand(attention - architecture.attention_scores_and_values(B, T, d)) == 0
    assert sympy.expand(2 * matmul.feedforward(B, T, d, f) - architecture.plain_feedforward(B, T, d, f)) == 0
    layer = 2 * parameters.query(d, h, d / h) + 2 * parameters.key_or_value(d, h, d / h)
    layer += (
        2 * parameters.feedforward(d, f) + parameters.per_hidden_component(f) + 5 * parameters.per_model_component(d)
    )
    whole = 2 * parameters.token_embedding(V, d) + parameters.position_embedding(C, d) + L * layer
    whole += 2 * parameters.per_model_component(d)
    assert sympy.expand(whole - architecture.teaching_parameters(V, d, C, L, f)) == 0


def test_rules():
    assert training_compute.rule_parameters(80, 8192, 128256) == 65_475_182_592
    assert training_compute.rule_flops(7 * 10**10, 15 * 10**12) == 63 * 10**23
    assert training_compute.seconds(63 * 10**23, 16_000, 400 * 10**12) == 984_375.0
    assert kv_cache.ratio_to_multi_head(Fraction(2), 8) == Fraction(1, 4)
    d, h_kv, d_h = 128, 2, 16
    assert architecture.grouped_attention_parameters(d, h_kv, d_h) == 40_960
    assert Fraction(40_960, architecture.attention_parameters(d)) == Fraction(5, 8)
