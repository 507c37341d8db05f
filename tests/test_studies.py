"""The studies: the floor is the source's entropy, a training is repeatable, and what decides is measured."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest
import yaml

torch = pytest.importorskip("torch")

from transformer_ledger import bounds, tables  # noqa: E402
from transformer_ledger.claims.claim import verdict  # noqa: E402
from transformer_ledger.claims.text_b import CLAIMS  # noqa: E402
from transformer_ledger.model import from_architecture  # noqa: E402
from transformer_ledger.study import attention, checkpoint, classification, extension  # noqa: E402
from transformer_ledger.study.source import HELD_OUT, KINDS, TRAINING, VALIDATION, Source, held_out, plausible, stream  # noqa: E402
from transformer_ledger.study.training import Programme, fresh  # noqa: E402
from transformer_ledger.verification import attention_schedules  # noqa: E402
from transformer_ledger.verification import checkpoint as checkpoint_verification  # noqa: E402
from transformer_ledger.verification import classification as classification_verification  # noqa: E402

ROOT = Path(__file__).parents[1]
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


def test_what_no_predictor_can_do_is_not_plausible():
    source = Source(**SOURCE)
    data = held_out(source, 200, 12, 7)
    for kind in KINDS:
        floor, own = source.floor(kind, 12), data.loss[kind]
        assert plausible(own, data, kind, floor)
        assert plausible(own + 0.3, data, kind, floor)
        assert not plausible(own - 0.3, data, kind, floor)  # it has seen what it predicts
        assert not plausible(own, data, kind, floor * 1.5)
        assert not plausible(own, data, kind, floor / 2)


def test_a_model_of_another_size_is_out_of_budget():
    base, other = trained_with([0.1, 0.2]), trained_with([0.1, 0.2])
    base.parameters = other.parameters = extension.parameters(SPEC)
    assert extension.in_budget(other, base)
    other.parameters += 1
    assert not extension.in_budget(other, base)
    longer = trained_with([0.1, 0.2])
    longer.parameters, longer.programme = base.parameters, Programme(**{**PROGRAMME, "steps": 41})
    assert not extension.in_budget(longer, base)


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
    assert all(row["holds"] for row in rows)
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
            assert row["decided"] == row["stated"] == row["registered"], row["change"]
        assert row["loads_as_is"] == (row["key"] not in ("rope", "gqa", "rmsnorm", "gated", "gqa_equal"))
    assert set(decided.values()) == {"function", "schedule"}
    assert [row["decided"] for row in classified if row["change"] == "no change"] == ["nothing"]
    by = {row["change"]: row for row in classified}
    assert by["4 → 2 key/value heads, mean-pooled"]["sharing"]
    assert by["GELU → gated, equal budget"]["activation"]
    assert not by["no cache → cache"]["activation"]
    assert by["no cache → cache"]["cache_bytes_change"] == 2 * 2 * 2 * 9 * 16 * 8  # k, v × layers × B × T × d × fp64
    assert by["weights stored in bf16"]["parameter_bytes_change"] == -2 * by["no change"]["parameters"]


def test_the_claims_are_settled(classified, path):
    rows = classification_verification.compute({}, {"classification": classified})
    rows += checkpoint_verification.compute({}, path, [2, 1], 2, BLOCKS, BOUNDED, 0.9)
    rows += attention_schedules.compute(
        {}, 2, 8, 64, {"queries": 8, "keys": 16}, 8192,
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
    wrong = [{**row, "registered": "schedule"} if row["key"] == "rope" else row for row in classified]
    rows = classification_verification.compute({}, {"classification": wrong})
    claim = next(claim for claim in CLAIMS if claim.id == "B10.1")
    assert verdict(claim, [row for row in rows if row["claim"] == "B10.1"]) == "refuted"


def test_another_name_of_a_change_moves_no_verdict(classified):
    renamed = [{**row, "change": f"change {i}"} for i, row in enumerate(classified)]
    rows, again = (classification_verification.compute({}, {"classification": x}) for x in (classified, renamed))
    assert [(row["claim"], row["key"], row["holds"]) for row in rows] == [
        (r["claim"], r["key"], r["holds"]) for r in again
    ]


def test_attention_errors():
    rows = attention.compute(
        [{"queries": queries, "length": 70, "causal": True, "kv_heads": 1} for queries in (None, 33)], 2, 16,
        ["fp32", "bf16"], {"ordinary": 1.0, "peaky": 16.0}, {"queries": 16, "keys": 32}, 2.0, 0,
    )  # fmt: skip
    assert {row["method"] for row in rows} == {"naive", "blocked", "fused"}
    for row in rows:
        limit = 1e-5 if row["dtype"] == "fp32" else 2e-2 if row["method"] != "naive" else 1.0
        assert 0 < row["relative_rms_error"] < limit, row
        assert row["holds"] is (True if row["method"] == "blocked" else None)


def test_a_larger_error_is_not_accepted():
    exact = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    got = {"naive": exact + 1, "blocked": exact + 3e-6, "fused": exact + 1e-6}
    for allowed, holds in ((4.0, True), (2.9, False)):
        rows = {row["method"]: row for row in attention.judged(exact, got, allowed)}
        assert [rows[method]["holds"] for method in got] == [None, holds, None]
    assert attention.judged(exact, {**got, "blocked": exact * torch.nan}, 1e9)[1]["holds"] is False
    assert attention.judged(exact, {**got, "fused": exact}, 2.0)[1]["holds"] is None  # nothing to be compared with


@pytest.mark.parametrize("freedom", [1, 2, 9])
def test_student_quantile(freedom):
    known = {1: 12.7062047362, 2: 4.30265272975, 9: 2.26215716280}[freedom]  # tables of t at 97.5 %
    assert extension.student_quantile(0.975, freedom) == pytest.approx(known, rel=1e-9)


SIZES = {"layers": 1, "d_model": 8, "heads": 2, "d_ff": 12, "vocabulary": 16, "context": 12}


def test_extensions_at_every_budget():
    made = extension.compute(
        {"teaching": SPEC.to_json()}, SIZES, ["gqa", "modern"], 1, SOURCE, {**PROGRAMME, "steps": 6}, [0.5, 1.0],
        {"factors": [1.0, 4.0], "sequences": 4, "seed": 9}, 2, {"sequences": 4, "seed": 2}, [0, 1], 0.95,
    )  # fmt: skip
    rows = {(row["variant"], row["budget"], row["share"]): row for row in made["study/extension"]}
    assert set(rows) == {
        *((name, "scratch", share) for name in ("base", "gqa", "modern") for share in (0.5, 1.0)),
        *((name, budget, share) for name in ("base", "gqa") for budget, share in (("conversion", 0), ("up-training", 1 / 3))),
    }  # fmt: skip
    for (name, budget, share), row in rows.items():
        base = rows["base", budget, share]
        if budget == "scratch":
            assert abs(row["parameter_change"]) <= 3 * 8 + 2  # half a unit of width
            assert 2 * abs(row["flops"] - base["flops"]) <= row["flops"] // row["steps"]
        assert row["holds"], row
        assert not row["distinguishable"] or name != "base"
        assert row["comparisons"] == 3 * 6  # six differences, of both sources and of each
        assert row["interval_confidence"] == pytest.approx(1 - 0.05 / 18)
    base = rows["base", "scratch", 1.0]
    assert base["steps"] == 6 == 2 * rows["base", "scratch", 0.5]["steps"]
    assert rows["gqa", "scratch", 1.0]["cache_bytes"] * 2 == base["cache_bytes"]
    assert rows["base", "conversion", 0]["excess"] == base["excess"]  # the very same weights
    assert rows["gqa", "conversion", 0]["flops"] == 0 < rows["gqa", "up-training", 1 / 3]["flops"]
    tensors = {row["tensor"]: row for row in made["study/extension_tensors"] if row["variant"] == "modern"}
    assert tensors["position_embedding.weight"]["status"] == "gone"
    assert tensors["layers.0.feedforward.gate.weight"]["status"] == "new"
    assert tensors["layers.0.attention.key.weight"]["status"] == "reshaped"
    assert sum(row["parameters_after"] for row in tensors.values()) == rows["modern", "scratch", 1.0]["parameters"]
    for table, found in made.items():
        assert {key for row in found for key in row} <= {column.name for column in tables.TABLES[table]}
    selected = [row for row in made["study/extension_runs"] if row["budget"] == "selection"]
    assert {(row["split"], row["seed"]) for row in selected} == {("validation", 9)}
    for name in ("base", "gqa", "modern"):
        tried = {}
        for row in selected:
            if row["variant"] == name:
                tried.setdefault(row["learning_rate"], []).append(row)
        best = min(tried, key=lambda rate: sum(row["excess"] for row in tried[rate]))
        assert [rate for rate, own in tried.items() if own[0]["chosen"]] == [best]
        assert rows[name, "scratch", 1.0]["learning_rate"] == best


def test_a_training_that_ends_nowhere_is_not_chosen():
    tried = []
    for rate, excess in ((0.01, 0.3), (0.02, math.nan), (0.04, 0.2)):
        run = trained_with([excess])
        tried.append(run)
        run.programme = Programme(**{**PROGRAMME, "learning_rate": rate})
    assert extension.best_rates(tried) == {"rope": 0.04}


def test_what_chooses_is_neither_trained_on_nor_held_out():
    source = Source(8, 0.5, 4, 8, 1)
    drawn = {
        purpose: {tuple(row) for ids in held_out(source, 64, 32, 3, purpose).ids.values() for row in ids}
        for purpose in (HELD_OUT, VALIDATION)
    }
    seen = {tuple(row) for batch in itertools.islice(source.batches(stream(3, TRAINING), 8, 32), 100) for row in batch}
    assert not drawn[VALIDATION] & drawn[HELD_OUT]
    assert not drawn[VALIDATION] & seen


def merged(base, overlay):
    for key, value in overlay.items():
        base[key] = merged(base[key], value) if isinstance(value, dict) else value
    return base


@pytest.mark.parametrize("overlay", ["", "config.studies.yaml"])
def test_the_study_costs_what_its_config_says(overlay):
    config = yaml.safe_load((ROOT / "config.yaml").read_text())
    if overlay:
        merged(config, yaml.safe_load((ROOT / overlay).read_text()))
    own = config["study"]["extension"]
    base = from_architecture("teaching", config["models"]["teaching"]["architecture"])
    programme = Programme(**own["programme"])
    plan = extension.planned(
        extension.smaller(base, own["sizes"]), own["extensions"], own["kv_heads"], programme, own["budgets"],
        own["selection"]["factors"], own["uptraining_steps"],
    )  # fmt: skip
    steps = len(own["seeds"]) * sum(run.programme.steps for run in plan.runs(dict.fromkeys(plan.specs, 1.0)))
    steps += sum(run.programme.steps for run in plan.selection())
    said = re.findall(r"([0-9,]+) steps in all, ([0-9,]+) tokens", (ROOT / (overlay or "config.yaml")).read_text())
    assert said == [(f"{steps:,}", f"{steps * programme.batch * programme.length:,}")]


def trained_with(excesses):
    run = extension.Trained("rope", "scratch", 1.0, SPEC, Programme(**PROGRAMME))
    run.losses = {seed: dict.fromkeys(KINDS, 1.0 + excess) for seed, excess in enumerate(excesses)}
    run.source_losses = {seed: dict.fromkeys(KINDS, 1.0) for seed in run.losses}
    return run


def test_a_difference_is_taken_seed_by_seed():
    base = trained_with([0.1, 0.5, 0.3])
    # A tenth less for every seed, far less than the seeds differ: seen, as they share it.
    better = extension.changes(trained_with([0.0, 0.41, 0.2]), base, 0.95)
    assert better["excess_change"] == pytest.approx(-0.29 / 3)
    assert better["excess_change_high"] < 0
    assert better["distinguishable"]
    # As much less in the mean, but not for every seed: within the spread.
    mixed = extension.changes(trained_with([0.3, 0.11, 0.2]), base, 0.95)
    assert mixed["excess_change"] == pytest.approx(-0.29 / 3)
    assert not mixed["distinguishable"]
    assert mixed["recall_excess_change_low"] < 0 < mixed["recall_excess_change_high"]


def test_variants_of_a_seed_start_equal():
    first, second, other = (
        dict(fresh(spec, seed).named_parameters())
        for spec, seed in ((SPEC, 0), (extension.extended(SPEC, "modern", 2), 0), (SPEC, 1))
    )
    drawn = [name for name, tensor in first.items() if tensor.dim() > 1 and not name.startswith("position")]
    shared = [name for name in drawn if name in second and first[name].shape == second[name].shape]
    assert {"token_embedding.weight", "layers.1.attention.query.weight", "head.weight"} <= set(shared)
    assert all(torch.equal(first[name], second[name]) for name in shared)
    assert not any(torch.equal(first[name], other[name]) for name in drawn)


def test_no_training_draws_the_held_out_sequences():
    source = Source(8, 0.5, 4, 8, 1)
    data = held_out(source, 64, 32, 3)
    seen = {tuple(row) for batch in itertools.islice(source.batches(stream(3, TRAINING), 8, 32), 100) for row in batch}
    assert not seen.intersection(tuple(row) for ids in data.ids.values() for row in ids)


def test_rows_fit_their_tables(trained, classified, tmp_path):
    tables.write(tmp_path / "a.parquet", "study/loss", trained["study/loss"], {})
    tables.write(tmp_path / "b.parquet", "study/classification", classified, {})
    assert len(tables.read(tmp_path / "b.parquet", "study/classification")) == len(classified)
