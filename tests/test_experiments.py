"""E1 and E2: the printed values from the reference, every case within its bound, and breaks that are seen."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import mpmath
import numpy as np
import pytest

from transformer_ledger import bounds, tables
from transformer_ledger.experiment import blocked_softmax, rope_dot_product
from transformer_ledger.reference import online_softmax
from transformer_ledger.reference.precision import ARITHMETICS, BF16, FP32, FP64, RATIONAL, round_bf16

ROTATED: dict[str, Any] = {
    "printed": {"q": [1, 2], "k": [3, -1], "frequency": 0.17, "m": 2, "n": 7, "shift": 11, "equal_angle": 0.8},
    "drawn": {
        "seed": 1,
        "head_dims": [8, 64],
        "bases": [10000.0, 500000.0],
        "pairings": ["interleaved", "half-split"],
        "positions": [[2, 7], [100, 37], [4095, 1]],
        "shift": 11,
    },
    "dtypes": ["fp64", "fp32", "bf16"],
    "reference_digits": 40,
}
BLOCKED: dict[str, Any] = {
    "printed": {
        "scores": [1000, 1001, 999, 1002],
        "values": [2, -1, 3, 4],
        "blocks": [[0, 1], [1, 3], [3, 4]],
    },
    "drawn": {
        "seed": 1,
        "scores": [[0, 1], [10000, 3], [-10000, 3]],
        "keys": [1, 5, 40],
        "value_dim": 2,
        "block_sizes": [1, 4, 64],
        "orders": ["ascending", "shuffled"],
        "masks": ["none", "prefix", "scattered", "first-block", "all"],
    },
    "dtypes": ["fp64", "fp32", "bf16"],
    "reference_digits": 40,
}


def _printed_only(settings: dict[str, Any]) -> dict[str, Any]:
    made = copy.deepcopy(settings)
    made["drawn"]["head_dims" if "head_dims" in made["drawn"] else "keys"] = []
    return made


@pytest.fixture(scope="module")
def rotated() -> list[dict[str, Any]]:
    return rope_dot_product.compute(**ROTATED)


@pytest.fixture(scope="module")
def blocked() -> dict[str, list[dict[str, Any]]]:
    return blocked_softmax.compute(**BLOCKED)


def test_printed_rotated_dot_product(rotated: list[dict[str, Any]]) -> None:
    row = next(row for row in rotated if row["case"] == "printed" and row["dtype"] == "fp64")
    # 5.918945981867031089379916699…, the reference's own digits
    assert row["reference_decimal"].startswith("5.91894598186703108937991669")
    assert row["difference"] < 1e-14
    same = next(row for row in rotated if row["case"] == "printed, one angle for both" and row["dtype"] == "fp64")
    assert mpmath.mpf(same["reference_decimal"]) == 1  # q·k itself: 1·3 + 2·(−1)


def test_printed_blocked_softmax(blocked: dict[str, list[dict[str, Any]]]) -> None:
    rows = [row for row in blocked["experiment/blocked_softmax"] if row["case"] == "printed"]
    outputs = [row for row in rows if row["quantity"] == "output" and row["dtype"] == "fp64"]
    assert {row["order"] for row in outputs} == {" ".join(order) for order in itertools.permutations("012")}
    for row in outputs:
        # 2.609238668786299215080123312502…, the reference's own digits
        assert row["reference_decimal"].startswith("2.60923866878629921508012331")
        assert math.isnan(row["naive"])
        assert row["dense"] == pytest.approx(2.609238668786299, rel=1e-15)
        assert row["blocked"] == pytest.approx(2.609238668786299, rel=1e-15)
        assert 0 < max(row["dense_error"], row["blocked_error"]) < 1e-15
        assert row["difference"] < 1e-14


def test_printed_states(blocked: dict[str, list[dict[str, Any]]]) -> None:
    states = blocked["experiment/blocked_softmax_states"]
    scores, values = BLOCKED["printed"]["scores"], BLOCKED["printed"]["values"]
    assert [state["maximum"] for state in states] == [1000, 1001, 1002]
    for state in states:  # the loop invariant
        weights = [math.exp(s - state["maximum"]) for s in scores[: state["end"]]]
        assert state["denominator"] == pytest.approx(sum(weights), rel=1e-15)
        assert state["numerator"] == pytest.approx(sum(w * v for w, v in zip(weights, values, strict=False)), rel=1e-14)


def _ratio(row: dict[str, Any]) -> float:
    return row.get("ratio", row["difference"] / row["bound"] if row["bound"] else 0.0)


def test_every_case_is_within_its_bound_and_the_bounds_tell_something(
    rotated: list[dict[str, Any]], blocked: dict[str, list[dict[str, Any]]]
) -> None:
    for rows in (rotated, blocked["experiment/blocked_softmax"]):
        assert all(row["holds"] for row in rows)
        assert all(row["difference"] <= row["bound"] for row in rows)
        for dtype, own in tables.by(rows, "dtype").items():
            assert 1e-3 <= max(_ratio(row) for row in own) <= 1, dtype


def test_a_bound_as_wide_as_the_value_decides_nothing(
    rotated: list[dict[str, Any]], blocked: dict[str, list[dict[str, Any]]]
) -> None:
    assert bounds.decides(0.1, 1.0)
    assert bounds.decides(0.0, 0.0)
    assert not bounds.decides(0.11, 1.0)
    assert not bounds.decides(math.inf, 1.0)
    for rows in (rotated, blocked["experiment/blocked_softmax"]):
        for row in rows:
            size = row.get("size", abs(row["reference"]))
            assert row["decisive"] == (row["bound"] <= size / 10), row
    printed = [row for row in rotated if row["case"] == "printed"]
    assert {row["dtype"]: row["decisive"] for row in printed} == {"fp64": True, "fp32": True, "bf16": False}


def test_tables_take_the_rows(
    tmp_path: Any, rotated: list[dict[str, Any]], blocked: dict[str, list[dict[str, Any]]]
) -> None:
    for name, rows in {"experiment/rope_dot_product": rotated, **blocked}.items():
        path = tmp_path / f"{name}.parquet"
        tables.write(path, name, rows, {})
        assert len(tables.read(path, name)) == len(rows)


def test_same_settings_same_rows(rotated: list[dict[str, Any]]) -> None:
    assert repr(rope_dot_product.compute(**ROTATED)) == repr(rotated)
    moved = copy.deepcopy(ROTATED)
    moved["drawn"]["seed"] = 2
    assert repr(rope_dot_product.compute(**moved)) != repr(rotated)


def _is_query(pairs: Any) -> bool:
    return bool(pairs[0, 0] == ROTATED["printed"]["q"][0])


ROTATION_BREAKS: dict[str, Callable[..., Any]] = {
    "k turned the other way": lambda turn, x, position, *rest: turn(x, position if _is_query(x) else -position, *rest),
    "q not turned": lambda turn, x, position, *rest: x if _is_query(x) else turn(x, position, *rest),
    "turned and stretched": lambda turn, x, position, *rest: turn(x, position, *rest) * 1.000001,
}


@pytest.mark.parametrize("name", sorted(ROTATION_BREAKS))
def test_a_broken_rotation_leaves_the_bound(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = _printed_only(ROTATED) | {"dtypes": ["fp64"]}
    assert all(row["holds"] for row in rope_dot_product.compute(**settings))
    right, broken = rope_dot_product.Rotation.turn, ROTATION_BREAKS[name]

    def turn(self: Any, x: Any, position: int, arithmetic: Any) -> Any:
        return broken(lambda *rest: right(self, *rest), x, position, arithmetic)

    monkeypatch.setattr(rope_dot_product.Rotation, "turn", turn)
    row = rope_dot_product.compute(**settings)[0]
    assert not row["holds"]
    assert row["difference"] > 100 * row["bound"]


Forward = Callable[..., list[online_softmax.State]]


def _broken_rows(monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], forward: Forward) -> list[dict[str, Any]]:
    """Rows of E2 in fp64 when the forward loop is `forward`; without the states' table and the rows of one block."""
    monkeypatch.setattr(blocked_softmax, "allowed_rows", lambda dtypes, digits: [])
    monkeypatch.setattr(online_softmax, "forward", forward)
    monkeypatch.setattr(blocked_softmax, "states", lambda printed: [])
    return blocked_softmax.compute(**settings | {"dtypes": ["fp64"]})["experiment/blocked_softmax"]


BLOCK_BREAKS = {
    "a block read twice": lambda blocks: [blocks[0], *blocks],
    "a block left out": lambda blocks: blocks[1:],
    "a block one key short": lambda blocks: [(begin, max(begin + 1, end - 1)) for begin, end in blocks],
}


@pytest.mark.parametrize("name", sorted(BLOCK_BREAKS))
def test_broken_blocks_leave_the_bound(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = online_softmax.forward
    rows = _broken_rows(
        monkeypatch,
        _printed_only(BLOCKED),
        lambda s, v, blocks, *rest: right(s, v, BLOCK_BREAKS[name](list(blocks)), *rest),
    )
    outputs = [row for row in rows if row["quantity"] == "output"]
    assert not any(row["holds"] for row in outputs)
    assert min(row["difference"] / row["bound"] for row in outputs) > 100


def test_a_missing_rescaling_leaves_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    def forward(scores: Any, values: Any, blocks: Any, visible: Any, arithmetic: Any) -> list[online_softmax.State]:
        first = online_softmax.empty(values.shape[1], arithmetic)
        m, a, o = first.maximum, first.denominator, first.numerator
        for begin, end in blocks:
            part = slice(begin, end)
            own = online_softmax.update(first, scores[part], values[part], visible[part], arithmetic)
            m, a, o = max(m, own.maximum), a + own.denominator, o + own.numerator
        return [online_softmax.State(m, a, o)]

    rows = _broken_rows(monkeypatch, _printed_only(BLOCKED), forward)
    assert not any(row["holds"] for row in rows if row["quantity"] == "output")


def test_a_forgotten_mask_leaves_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    right = online_softmax.forward
    rows = _broken_rows(
        monkeypatch, BLOCKED, lambda s, v, blocks, visible, a: right(s, v, blocks, np.ones(len(s), bool), a)
    )
    for case, own in tables.by([row for row in rows if row["case"].startswith("drawn")], "case").items():
        assert all(row["holds"] for row in own) == case.endswith("none"), case


def _compositions(n: int) -> Iterator[list[tuple[int, int]]]:
    """All ways of cutting n keys into consecutive blocks."""
    for cuts in itertools.product([False, True], repeat=n - 1):
        edges = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), n]
        yield list(itertools.pairwise(edges))


def test_blocked_and_dense_are_equal_in_rationals() -> None:
    """2ˣ as the exponential: every partition and order of five keys, and the invariant after every block."""
    scores, values = RATIONAL.array([3, -2, 7, 7, 0]), RATIONAL.array([[2, 1], [-1, 5], [3, 0], [4, -2], [9, 1]])
    gradient, seen = RATIONAL.array([1, -3]), np.array([True, True, False, True, True])
    for visible in (np.ones(5, bool), seen):
        p = online_softmax.probabilities(scores, visible, RATIONAL)
        dense = online_softmax.dense(p, values, RATIONAL)
        gradients = online_softmax.dense_backward(p, values, gradient, RATIONAL)
        for blocks in _compositions(5):
            for order in itertools.permutations(blocks):
                states = online_softmax.forward(scores, values, order, visible, RATIONAL)
                assert (online_softmax.output(states[-1], RATIONAL) == dense).all()
                read = online_softmax.backward(scores, values, gradient, states[-1], order, visible, RATIONAL)
                assert (read[0] == gradients[0]).all()
                assert (read[1] == gradients[1]).all()
                keys: list[int] = []
                for (begin, end), state in zip(order, states[1:], strict=True):
                    keys += [i for i in range(begin, end) if visible[i]]
                    weights = RATIONAL.exp(scores[keys] - state.maximum) if keys else []
                    assert state.denominator == sum(weights)
                    assert (state.numerator == sum(w * v for w, v in zip(weights, values[keys], strict=True))).all()


def test_gradients_against_torch() -> None:
    torch = pytest.importorskip("torch")
    generator = np.random.Generator(np.random.PCG64(3))
    scores, values, gradient = (generator.standard_normal(shape) for shape in ((9,), (9, 3), (3,)))
    visible = generator.random(9) < 0.7
    s, v = (torch.tensor(x, requires_grad=True) for x in (scores, values))
    (s.masked_fill(~torch.tensor(visible), -math.inf).softmax(0) @ v).backward(torch.tensor(gradient))
    blocks = online_softmax.partition(9, 4)
    state = online_softmax.forward(scores, values, blocks, visible)[-1]
    d_scores, d_values = online_softmax.backward(scores, values, gradient, state, blocks, visible)
    np.testing.assert_allclose(d_scores, s.grad.numpy(), rtol=0, atol=1e-15)
    np.testing.assert_allclose(d_values, v.grad.numpy(), rtol=0, atol=1e-15)


@pytest.mark.parametrize("arithmetic", [*ARITHMETICS.values(), RATIONAL], ids=lambda a: a.name)
def test_a_fully_masked_row_is_zero(arithmetic: Any) -> None:
    scores, values = arithmetic.array([1, 2, 3]), arithmetic.array([[1], [2], [3]])
    visible, blocks = np.zeros(3, bool), online_softmax.partition(3, 2)
    last = online_softmax.forward(scores, values, blocks, visible, arithmetic)[-1]
    assert online_softmax.output(last, arithmetic).tolist() == [0]
    assert online_softmax.log_sum_exp(last) == -math.inf
    gradients = online_softmax.backward(scores, values, arithmetic.array([1]), last, blocks, visible, arithmetic)
    assert not any(x.any() for x in gradients)


def test_minus_infinite_scores_count_as_masked_and_the_unguarded_form_gives_nan() -> None:
    scores, values = np.array([-np.inf, -np.inf, 2.0, -np.inf]), np.array([[1.0], [2], [3], [4]])
    blocks = online_softmax.partition(4, 2)
    states = online_softmax.forward(scores, values, blocks)
    assert [state.maximum for state in states] == [-math.inf, -math.inf, 2]
    assert online_softmax.output(states[-1]).tolist() == [3]
    assert online_softmax.log_sum_exp(states[-1]) == 2
    empty = online_softmax.empty(1)
    naive = online_softmax.unguarded(empty, scores[:2], values[:2], np.ones(2, bool))
    assert math.isnan(naive.denominator)
    guarded = online_softmax.unguarded(empty, scores[2:], values[2:], np.ones(2, bool))
    assert guarded.denominator == 1


def test_bf16_rounding_is_torchs() -> None:
    torch = pytest.importorskip("torch")
    generator = np.random.Generator(np.random.PCG64(1))
    x = generator.standard_normal(100_000) * 2.0 ** generator.integers(-140, 127, 100_000)
    halves = np.arange(1, 512)[:, None] * 2.0 ** np.arange(-142, 120, 7)  # many ties
    special = np.array([0.0, -0.0, np.inf, -np.inf, 3.4e38, -3.4e38, 3.3961775292304957e38])
    x = np.concatenate([x, halves.ravel(), special]).astype(np.float32)
    expected = torch.tensor(x).to(torch.bfloat16).double().numpy()
    assert np.array_equal(round_bf16(x).view(np.uint64), expected.view(np.uint64))
    assert np.isnan(round_bf16(np.nan))


def test_sums_are_rounded_after_every_addition() -> None:
    assert BF16.sum(BF16.array([256, 1, 1])) == 256  # 257 is no bf16 number
    assert FP32.sum(FP32.array([2**24, 1, 1])) == 2**24
    assert FP64.sum(FP64.array([2**24, 1, 1])) == 2**24 + 2
    assert FP64.sum(FP64.array([])) == 0
