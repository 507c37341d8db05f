"""The studies: the floor is the source's entropy, a training is repeatable, and what decides is measured."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from transformer_ledger import bounds, tables  # noqa: E402
from transformer_ledger.claims.claim import verdict  # noqa: E402
from transformer_ledger.claims.text_b import CLAIMS  # noqa: E402
from transformer_ledger.model import from_architecture  # noqa: E402
from transformer_ledger.study import attention, checkpoint, classification, extension  # noqa: E402
from transformer_ledger.study.source import KINDS, Source, held_out  # noqa: E402
from transformer_ledger.verification import attention_schedules  # noqa: E402
from transformer_ledger.verification import checkpoint as checkpoint_verification  # noqa: E402
from transformer_ledger.verification import classification as classification_verification  # noqa: E402

SOURCE = {"symbols": 4, "concentration": 0.3, "keys": 2, "values": 3, "seed": 1}
PROGRAMME = {"length": 12, "batch": 8, "steps": 40, "warmup": 4, "learning_rate": 0.01, "weight_decay": 0.01}
BLOCKS = {"queries": 3, "keys": 4}
BOUNDED = {"sequences": 1, "tokens": 9}
SPEC = from_architecture(
    "teaching",
    {
        "layers": 2, "d_model": 16, "heads": 4, "d_ff": 24, "vocabulary": 16, "context": 12, "positions": "learned",
        "norm": "layernorm", "feedforward": "gelu", "biases": {"feedforward": True, "norm": True},
    },
)  # fmt: skip
SETTINGS = {
    "models": {"teaching": SPEC.to_json()},
    "source": SOURCE,
    "programme": PROGRAMME,
    "held_out_data": {"sequences": 16, "seed": 2},
    "evaluations": 4,
    "seed": 0,
}


@pytest.fixture(scope="module")
def trained():
    return checkpoint.compute(**SETTINGS)


@pytest.fixture(scope="module")
def path(trained, tmp_path_factory):
    file = tmp_path_factory.mktemp("checkpoint") / "teaching.safetensors"
    file.write_bytes(trained["results/checkpoint/model.safetensors"])
    return str(file)


@pytest.fixture(scope="module")
def classified(path):
    return classification.compute(path, 2, BLOCKS, BOUNDED, 0.999, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_the_floor_is_what_the_source_loses(kind):
    source = Source(**SOURCE)
    loss = held_out(source, 3000, 12, 7).loss[kind].mean(1)
    low, high = bounds.mean_interval(loss)  # recall loses the same in every sequence: only rounding is left
    assert low - 1e-12 <= source.floor(kind, 12) <= high + 1e-12


def test_the_floor_by_enumeration():
    """Entropy of all sequences of four tokens given the first, added up one by one."""
    source = Source(2, 0.5, 2, 2, 3)
    total = 0.0
    for a in range(2):
        for b in range(2):
            for c in range(2):
                for d in range(2):
                    after = source.second[a, b] * source.table[a, b, c] * source.table[b, c, d]
                    total -= source.pairs[a].sum() * after * math.log(after)
    assert source.floor("markov", 3) == pytest.approx(total / 3, rel=1e-12)
    # Two facts, the second of a known key: ln V; a key: ln K; its value: nothing.
    assert source.floor("recall", 3) == pytest.approx((math.log(2) + math.log(2)) / 3, rel=1e-12)
    assert np.allclose(np.einsum("ab,abc->bc", source.pairs, source.table), source.pairs, atol=1e-15)


def test_recall_answers_follow_from_the_facts():
    source = Source(**SOURCE)
    ids, loss = source.draw(np.random.Generator(np.random.PCG64(0)), "recall", 50, 12)
    for row, surprise in zip(ids, loss, strict=True):
        facts = dict(divmod(int(token) - 4 - 2 - 3, 3) for token in row[:2])
        assert set(facts) == {0, 1}
        for at in range(2, 12, 2):
            assert facts[int(row[at]) - 4] == int(row[at + 1]) - 4 - 2
            assert surprise[at] == 0
    assert ids.max() < source.tokens


def test_training_is_repeatable_and_learns(trained):
    again = checkpoint.compute(**SETTINGS)
    assert again == trained
    assert checkpoint.compute(**{**SETTINGS, "seed": 1}) != trained
    rows = [row for row in trained["study/loss"] if row["split"] == "held-out"]
    for kind in KINDS:
        own = [row for row in rows if row["source"] == kind]
        assert own[-1]["excess"] < 0.5 * own[0]["excess"]
        assert own[-1]["excess"] > -0.1  # no model is below the source's own loss, but for the sample's luck


def test_a_restored_checkpoint_is_the_same_model(path):
    known = checkpoint.restore(path)
    model = known.model()
    assert known.spec == SPEC
    assert checkpoint.logits_hash(model, known.held_out) == known.logits_hash
    with torch.no_grad():
        model.head.weight[0, 0] += 1e-6
    assert checkpoint.logits_hash(model, known.held_out) != known.logits_hash


def test_what_changes_the_function(classified):
    decided = {row["change"]: row["decided"] for row in classified if not row["control"]}
    for row in classified:
        if row["stated"]:
            assert row["decided"] == row["stated"], row["change"]
        assert row["loads_as_is"] == (row["change"].split()[0] not in ("learned", "4", "LayerNorm", "GELU"))
    assert set(decided.values()) == {"function", "schedule"}
    assert [row["decided"] for row in classified if row["change"] == "no change"] == ["nothing"]
    by = {row["change"]: row for row in classified}
    assert by["4 → 2 key/value heads, mean-pooled"]["sharing"]
    assert by["GELU → gated, equal budget"]["activation"]
    assert not by["no cache → cache"]["activation"]
    assert by["no cache → cache"]["cache_bytes_change"] == 2 * 2 * 2 * 9 * 16 * 8  # k, v × layers × B × T × d × fp64
    assert by["weights stored in bf16"]["parameter_bytes_change"] == -2 * by["no change"]["parameters"]


def test_the_claims_are_settled(classified, path):
    rows = classification_verification.compute({"classification": classified}, ["learned → RoPE", "4 → 2"])
    rows += checkpoint_verification.compute(path, [2, 1], 2, BLOCKS, BOUNDED, 0.9)
    rows += attention_schedules.compute(
        2, 8, 64, {"queries": 8, "keys": 16}, 8192,
        {"heads": 4, "kv_heads": 2, "tokens": 11, "head_dim": 2, "blocks": {"queries": 3, "keys": 4}}, 0,
    )  # fmt: skip
    for claim in CLAIMS:
        own = [row for row in rows if row["claim"] == claim.id]
        if own:
            # How far the loss rises is the shipped checkpoint's affair, not this tiny one's.
            own = [row for row in own if "loss's rise" not in row["quantity"]]
            assert [row["case"] for row in own if not row["holds"]] == []
            assert verdict(claim, own) == claim.registered


def test_a_misjudged_change_refutes(classified):
    wrong = [{**row, "stated": "schedule"} if row["change"] == "learned → RoPE" else row for row in classified]
    rows = classification_verification.compute({"classification": wrong}, ["learned → RoPE"])
    claim = next(claim for claim in CLAIMS if claim.id == "B10.1")
    assert verdict(claim, [row for row in rows if row["claim"] == "B10.1"]) == "refuted"


def test_attention_errors():
    rows = attention.compute(
        [{"length": 70, "causal": True, "kv_heads": 1}], 2, 16, ["fp32", "bf16"], {"ordinary": 1.0, "peaky": 16.0},
        {"queries": 16, "keys": 32}, 0,
    )  # fmt: skip
    assert {row["method"] for row in rows} == {"naive", "blocked", "fused"}
    for row in rows:
        limit = 1e-5 if row["dtype"] == "fp32" else 2e-2 if row["method"] != "naive" else 1.0
        assert 0 < row["relative_rms_error"] < limit, row


@pytest.mark.parametrize("freedom", [1, 2, 9])
def test_student_quantile(freedom):
    known = {1: 12.7062047362, 2: 4.30265272975, 9: 2.26215716280}[freedom]  # tables of t at 97.5 %
    assert extension.student_quantile(0.975, freedom) == pytest.approx(known, rel=1e-9)


def test_extensions_at_both_budgets():
    sizes = {"layers": 1, "d_model": 8, "heads": 2, "d_ff": 12, "vocabulary": 16, "context": 12}
    made = extension.compute(
        {"teaching": SPEC.to_json()}, sizes, ["gqa", "modern"], 1, SOURCE, {**PROGRAMME, "steps": 6}, 2,
        {"sequences": 4, "seed": 2}, [0, 1], 0.95,
    )  # fmt: skip
    rows = {(row["variant"], row["budget"]): row for row in made["study/extension"]}
    assert set(rows) == {
        *((name, budget) for name in ("gqa", "modern") for budget in ("parameters", "compute")),
        ("base", "parameters"), ("base", "up-training"), ("gqa", "up-training"),
    }  # fmt: skip
    base = rows["base", "parameters"]
    for (name, budget), row in rows.items():
        step = row["flops"] // row["steps"]
        if budget == "parameters":
            assert abs(row["parameter_change"]) <= 3 * 8 + 2  # half a unit of width
        if budget == "compute":
            assert abs(row["flops"] - base["flops"]) <= step
        assert not row["distinguishable"] or name != "base"
    assert rows["gqa", "compute"]["cache_bytes"] * 2 == base["cache_bytes"]
    tensors = {row["tensor"]: row for row in made["study/extension_tensors"] if row["variant"] == "modern"}
    assert tensors["position_embedding.weight"]["status"] == "gone"
    assert tensors["layers.0.feedforward.gate.weight"]["status"] == "new"
    assert tensors["layers.0.attention.key.weight"]["status"] == "reshaped"
    for table, found in made.items():
        assert {key for row in found for key in row} <= {column.name for column in tables.TABLES[table]}


def test_rows_fit_their_tables(trained, classified, tmp_path):
    tables.write(tmp_path / "a.parquet", "study/loss", trained["study/loss"], {})
    tables.write(tmp_path / "b.parquet", "study/classification", classified, {})
    assert len(tables.read(tmp_path / "b.parquet", "study/classification")) == len(classified)
