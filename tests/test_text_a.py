"""Text A, sections 1 to 7: what the run does not say, with the shipped settings or with edited ones."""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from transformer_ledger import config, jobs
from transformer_ledger.claims.claim import verdict
from transformer_ledger.claims.text_a import CLAIMS
from transformer_ledger.reference import decoder
from transformer_ledger.reference.arithmetic import BLAS, RATIONAL, SEQUENTIAL
from transformer_ledger.reference.scores import Sample, factor, variance
from transformer_ledger.verification import output_projection, rope_relative

ROOT = Path(__file__).parents[1]
FILES = [str(ROOT / "config.yaml"), str(ROOT / "config.minimal.yaml")]
BY_ID = {claim.id: claim for claim in CLAIMS}


def run(name: str, **edits: Any) -> list[dict[str, Any]]:
    """Rows of one verification with the minimal config, edited."""
    settings = jobs.settings(SHIPPED, f"verification/{name}") | edits
    return importlib.import_module(f"transformer_ledger.verification.{name}").compute(settings, **settings)


def merged() -> dict[str, Any]:
    def merge(low: Any, high: Any) -> Any:
        both = isinstance(low, dict) and isinstance(high, dict)
        return low | {key: merge(low.get(key), value) for key, value in high.items()} if both else high

    first, second = (yaml.safe_load(Path(path).read_text(encoding="utf-8")) for path in FILES)
    return merge(first, second)


SHIPPED = config.load(merged(), FILES)


def test_registry() -> None:
    sections = Counter(claim.id.partition(".")[0] for claim in CLAIMS)
    assert [claim.id for claim in CLAIMS] == [f"{s}.{n + 1}" for s, count in sections.items() for n in range(count)]
    for claim in CLAIMS:
        assert claim.statement.endswith(".")
        assert (claim.condition is None) == (claim.registered == "confirmed"), claim.id
    assert len({claim.statement for claim in CLAIMS}) == len(CLAIMS)


@pytest.mark.parametrize(
    ("name", "edit", "claim"),
    [
        ("embedding_lookup", {"vocabulary": 30}, "A1.2"),
        ("output_projection", {"d_model": 12, "heads": [1, 4]}, "A2.1"),
        ("permutation", {"words": ["a", "b", "c"]}, "A5.1"),
        ("permutation", {"words": ["a", "b", "c"]}, "A5.2"),
        ("rope_relative", {"positions": 25, "base": 500000.0}, "A6.1"),
        ("rope_relative", {"positions": 25, "base": 500000.0}, "A6.2"),
        ("rope_relative", {"positions": 8}, "A6.1"),
        ("rope_relative", {"positions": 25, "text_head_dim": 8}, "A6.2"),
        ("score_scale", {"widths": [2, 16]}, "A4.1"),
    ],
)
def test_printed_figures_do_not_apply_to_other_settings(name: str, edit: dict[str, Any], claim: str) -> None:
    rows = [row for row in run(name, **edit) if row["claim"] == claim]
    counts = () if edit.get("positions") == 8 else ("625", "49")  # of pairs and differences: the base plays no part
    printed = [row for row in rows if row["printed"] and row["printed"] not in counts]
    assert printed
    assert not any(row["applicable"] for row in printed)
    assert verdict(BY_ID[claim], rows) == "not applicable"


def test_settings_that_cannot_be_run_are_named() -> None:
    architecture = SHIPPED["verification"]["permutation"]["architecture"] | {"vocabulary": 2}
    with pytest.raises(ValueError, match="vocabulary of 2"):
        run("permutation", architecture=architecture)
    with pytest.raises(ValueError, match="too few"):
        run("causal_prefix", text="too short")


@pytest.mark.parametrize("seed", range(5))
def test_contributions_add_up_for_any_shape(seed: int) -> None:
    generator = np.random.Generator(np.random.PCG64(seed))
    heads, head_dim, tokens = generator.integers(1, 6, 3)
    x, output = (RATIONAL.array(generator.integers(-9, 9, (n, heads * head_dim))) for n in (tokens, heads * head_dim))
    assert (sum(output_projection.table(x, output, heads, RATIONAL)) == x @ output).all()


def test_groups_hold_one_difference_each() -> None:
    scores = np.subtract.outer(np.arange(4), np.arange(4))  # m − n
    groups = rope_relative.groups(scores)
    assert all(set(values) == {offset} for offset, values in groups.items())
    assert sum(map(len, groups.values())) == scores.size
    assert rope_relative.spread(scores * 1.0) == 0


@pytest.mark.parametrize("width", [1, 3, 16, 80])
def test_the_decoders_factor_is_one_over_the_root(width: int) -> None:
    assert factor(width) == pytest.approx(width**-0.5, rel=1e-15)
    assert (factor(width, 0), factor(width, 2)) == (1, pytest.approx(1 / width, rel=1e-15))


def test_sampled_variance_is_the_symbols_variance() -> None:
    sample = Sample(2, (1, 3), 20000, 1, 0, 0.999, variance=4.0)
    for found, width in zip(sample.products().var(axis=0), sample.widths, strict=True):
        assert found == pytest.approx(float(variance(2, width, tokens=4)), rel=0.15)


@pytest.mark.parametrize("causal", [True, False])
def test_attention_layers_are_the_decoders(causal: bool) -> None:
    """In floating point, where norms are left out and the feed-forward is nothing."""
    spec = small_spec()
    weights = decoder.initial(spec, 0) | {"layers.0.feedforward.down": np.zeros((4, 8)), "head": np.eye(8)}
    ids = np.arange(5)
    plain = type("Plain", (type(SEQUENTIAL),), {"norm": lambda self, kind, x, *rest: x})()
    whole = decoder.forward(spec, weights, ids, plain, causal=causal)
    np.testing.assert_allclose(decoder.attention_layers(spec, weights, ids, BLAS, causal, ids), whole, rtol=1e-12)


def small_spec() -> Any:
    from transformer_ledger.model import from_architecture

    keys = {"layers": 1, "d_model": 8, "heads": 2, "d_ff": 4, "vocabulary": 8, "context": 5}
    kind = {"positions": "rope", "norm": "rmsnorm", "feedforward": "gelu"}
    return from_architecture("small", keys | kind)
