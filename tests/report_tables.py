"""Input tables of the page for its tests: ledgers and experiments as the jobs compute them, made-up cases."""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from pathlib import Path
from typing import Any

from cases import case

from transformer_ledger import routes
from transformer_ledger.claims import table as claims_table
from transformer_ledger.claims import text_a, text_b
from transformer_ledger.evidence import Evidence
from transformer_ledger.experiment import blocked_softmax, rope_dot_product
from transformer_ledger.figure import attention, attention_clock, checkpoint, extension, ledgers, matmul_scaling
from transformer_ledger.figure import blocked_softmax as softmax_pictures
from transformer_ledger.figure import rope_dot_product as rope_pictures
from transformer_ledger.figure import rope_precision as rotation_pictures
from transformer_ledger.ledger import (
    activations,
    agreement,
    conventions,
    fit,
    kv_cache,
    layout,
    matmul,
    parameters,
    training_compute,
    training_state,
)
from transformer_ledger.model import from_architecture
from transformer_ledger.report import algebra
from transformer_ledger.tables import TABLES

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "teaching": {
        "layers": 4,
        "d_model": 128,
        "heads": 8,
        "d_ff": 512,
        "vocabulary": 256,
        "context": 256,
        "positions": "learned",
        "norm": "layernorm",
        "feedforward": "gelu",
        "biases": {"feedforward": True, "norm": True},
    },
    "llama-3-8b": {
        "layers": 32,
        "d_model": 4096,
        "heads": 32,
        "kv_heads": 8,
        "d_ff": 14336,
        "vocabulary": 128256,
        "context": 8192,
        "positions": "rope",
        "norm": "rmsnorm",
        "feedforward": "gated",
    },
    "experts": {
        "layers": 32,
        "d_model": 4096,
        "heads": 32,
        "kv_heads": 8,
        "d_ff": 14336,
        "vocabulary": 32000,
        "context": 32768,
        "positions": "rope",
        "norm": "rmsnorm",
        "feedforward": "gated",
        "experts": {"count": 8, "per_token": 2},
        "window": 4096,
    },
}
HOSTILE = '=<script>alert("1")</script>](x)&'
RECIPES = {
    "adamw-fp32": {
        "weights": "fp32",
        "gradients": "fp32",
        "optimizer": "adamw",
        "moments": "fp32",
        "devices": 1,
        "zero_stage": 0,
    },
    "zero-3": {
        "weights": "bf16",
        "gradients": "bf16",
        "master_weights": "fp32",
        "optimizer": "adamw",
        "moments": "fp32",
        "devices": 64,
        "zero_stage": 3,
    },
}
WORKLOADS = {"b1-t128": {"batch": 1, "context": 128}, "b1-t4096": {"batch": 1, "context": 4096}}
CACHE_DTYPES = ["bf16", "int4-g64"]
LAYOUTS = {
    "tensor-8": {
        "models": ["llama-3-8b", "teaching"],
        "recipe": "zero-3",
        "workload": "b1-t128",
        "cache_dtype": "bf16",
        "state": RECIPES["zero-3"],
        "batch": 8,
        "context": 128,
        "layout": dataclasses.asdict(layout.Layout(tensor=8, sequence_parallel=True)),
    }
}
DEVICES = {
    name: {"memory_bytes": size, "reserve": 0.1}
    for name, size in (("large-192gb", 192 * 10**9), ("small-24gb", 24 * 10**9))
}
LARGEST = dict.fromkeys(
    ("d_model", "kv_heads", "group", "head_dim", "rank", "d_ff", "experts", "vocabulary", "window"), 4
)
E1 = {
    "printed": {"q": [1, 2], "k": [3, -1], "frequency": 0.17, "m": 2, "n": 7, "shift": 11, "equal_angle": 0.8},
    "drawn": {
        "seed": 0,
        "head_dims": [8],
        "bases": [10000.0],
        "pairings": ["interleaved", "half-split"],
        "positions": [[0, 5], [90, 7]],
        "shift": 11,
    },
    "dtypes": ["fp64", "fp32"],
    "reference_digits": 50,
}
E2 = {
    "printed": {"scores": [1000, 1001, 999, 1002], "values": [2, -1, 3, 4], "blocks": [[0, 1], [1, 3], [3, 4]]},
    "drawn": {
        "seed": 0,
        "scores": [[0, 1]],
        "keys": [5],
        "value_dim": 2,
        "block_sizes": [2],
        "orders": ["ascending"],
        "masks": ["none"],
    },
    "dtypes": ["fp64", "fp32"],
    "reference_digits": 50,
}


def models() -> dict[str, Any]:
    """Three models; the last one's label is an attack."""
    labels = {"teaching": "teaching", "llama-3-8b": "Llama 3 8B", "experts": HOSTILE}
    return {
        name: {"spec": from_architecture(name, keys).to_json(), "label": labels[name], "notes": []}
        for name, keys in ARCHITECTURES.items()
    }


def cases() -> list[dict[str, Any]]:
    """Cases that give every verdict of the claims table, and those that pictures are drawn from."""
    rows = [
        case("B1.1", "a shape", "exact", "parameters", 202304, "==", 202304, headline=True, unit="parameter"),
        case("B1.1", "attention with biases", "control", "difference", 512, ">=", 1),
        case("B5.3", "the printed sum", "exact", "Q/O weights", 32768, "==", 32776, printed="32,776", headline=True),
        case("B5.3", "our value", "exact", "Q/O weights", 32768, "==", 32768, scope="corrected"),
        case("B5.3", "another grouping", "control", "difference", 8, ">=", 1),
        case("A1.1", HOSTILE, "exact", "differing values", 1, "bitwise", 0, headline=True),
        case("A1.1", "finite table without −0.0", "exact", "differing values", 0, "bitwise", 0, scope="conditioned"),
        case("A1.1", "two-hot", "control", "differing values", 24, ">=", 1),
        case("A5.2", "rotary", "floating", "largest change", 0.31, ">=", 1e-14, headline=True),
        case("A5.2", "printed digits", "floating", "largest change", 0.31, "==", 0.319, scope="printed"),
        case("A5.2", "positions 0", "control", "largest change", 1.0, ">=", 1e-14),
    ]
    errors = Evidence("B4.4", by=routes.TORCH, base=10000.0, head_dim=128)
    for dtype, unit in (("fp64", 2.0**-53), ("fp32", 2.0**-24)):
        for octave in range(4, 21):
            error = min(2.0, unit * 2.0**octave)
            errors.within("largest error of cos and sin", error, 2 * error, dtype=dtype, up_to=2**octave)
    rows += errors.rows
    return rows


def _row(table: str, **values: Any) -> dict[str, Any]:
    """A row of `table` with these values and nothing else."""
    assert set(values) <= {column.name for column in TABLES[table]}
    return {column.name: None for column in TABLES[table]} | values


def study() -> dict[str, Any]:
    """Made-up rows of every study; in each table something that the page must call by its name."""
    changes = [("dense → blocked", "schedule", 1e-15), ("learned → RoPE", "function", 7.0), (HOSTILE, "function", 0.5)]
    kinds = ("expression", "sharing", "activation", "storage", "schedule", "loads_as_is", "retraining_needed")
    classification = [
        _row(
            "study/classification",
            key=change,
            change=change,
            registered=decided,
            stated="schedule" if change == HOSTILE else decided,
            control=False,
            bounded_change=moved,
            bound=1e-12,
            change_to_bound=moved / 1e-12,
            loss_change=moved / 10,
            loss_change_low=moved / 20,
            loss_change_high=moved / 5,
            decided=decided,
            parameters_changed=0,
            **dict.fromkeys(kinds, decided == "function"),
        )
        for change, decided, moved in changes
    ]
    loss = [
        _row(
            "study/loss", model="teaching", step=step, tokens=512 * step, split=split, source=source, loss=1 + 4 / step
        )
        | {"floor": 0.9, "source_loss": 0.95, "excess": 0.05 + 4 / step}
        for step in (1, 30, 60)
        for split, source in (("training", "both"), ("held-out", "markov"))
    ]
    ends = (("", 0.5), ("_change", 0.0), ("_change_low", -0.1), ("_change_high", 0.1))
    extension = [
        _row(
            "study/extension",
            variant=variant,
            budget=budget,
            share=1.0,
            learning_rate=0.01,
            comparisons=9,
            interval_confidence=0.99444,
            disclosed="Chosen so that differences show.",
            seeds=3,
            d_ff=256,
            parameters=109824,
            flops=59454259200,
            cache_bytes=16384,
            programme="AdamW, 350 steps",
            excess=0.5 + change,
            spread=0.01,
            excess_change=change,
            excess_change_low=change - 0.1,
            excess_change_high=change + 0.1,
            distinguishable=abs(change) > 0.1,
            **{f"{kind}_excess{key}": change + reach for kind in ("markov", "recall") for key, reach in ends},
        )
        for variant, budget, change in (
            ("base", "scratch", 0.0),
            ("rope", "scratch", 0.05),
            ("gqa", "up-training", 0.3),
            ("modern", "scratch", -0.3),
        )
    ]
    tensors = [
        _row("study/extension_tensors", variant="gqa", tensor=f"layers.{layer}.attention.key.weight", status="reshaped")
        | {"old_shape": "64 × 64", "new_shape": "32 × 64", "parameters_before": 4096, "parameters_after": 2048}
        for layer in range(2)
    ]
    errors = [
        _row("study/attention", case="4 heads", length=length, dtype="fp32", logits="peaky", method=method, tensor="dq")
        | {"relative_rms_error": error * length, "ratio_to_fused": error / 3e-9}
        for length in (256, 1024)
        for method, error in (("naive", 2e-9), ("blocked", 6e-9), ("fused", 3e-9))
    ]
    return {
        "classification": classification,
        "loss": loss,
        "extension": extension,
        "extension_tensors": tensors,
        "extension_runs": [_row("study/extension_runs", variant="gqa", budget="scratch", seed=0, loss=1.0)],
        "attention": errors,
    }


def timing() -> dict[str, Any]:
    """Made-up rows by the clock: blocked attention at two lengths, and a product whose time outgrows its count."""

    def timed(
        case: str, part: str, flops: int, seconds: float, baseline: str | None, ratios: tuple[float, float] | None,
        **parameters: Any,
    ):  # fmt: skip
        return _row(
            "timing",
            case=case,
            part=part,
            parameters=json.dumps(parameters),
            warmups=1,
            interleaved=4,
            spread=0.05,
            spread_wanted=0.1,
            flops=flops,
            bytes_moved=2**20,
            flops_per_byte=flops / 2**20,
            peak_flops_per_second=1e11,
            peak_bytes_per_second=2.5e10,
            bottleneck="compute",
            expected_seconds=flops / 1e11,
            repeats=11,
            median_seconds=seconds,
            q1_seconds=0.9 * seconds,
            q3_seconds=1.1 * seconds,
            measured_to_expected=seconds / (flops / 1e11),
            baseline=baseline,
            expected_ratio=ratios and ratios[0],
            measured_ratio=ratios and ratios[1],
            ratio_low=ratios and 0.9 * ratios[1],
            ratio_high=ratios and 1.1 * ratios[1],
            outcome=ratios and "longer",
            peak_bytes=flops // 100,
            threads=1,
            device="cpu",
        )

    lengths = {"blocked": 1.5, "fused": 1.0}
    return {
        "attention": [
            timed(
                f"{method}, T {T}, fp32",
                "forward",
                T * T * 1000,
                factor * T * T * 1e-8,
                f"fused, T {T}, fp32" if method == "blocked" else None,
                (1.0, factor) if method == "blocked" else None,
                method=method,
                length=T,
                dtype="fp32",
            )
            for T in (512, 1024)
            for method, factor in lengths.items()
        ],
        "matmul_scaling": [
            timed("B 1, T 512", "softmax", 10**9, 0.01, None, None, batch=1, length=512),
            timed("B 1, T 1024", "softmax", 4 * 10**9, 0.155, "B 1, T 512", (4.0, 15.5), batch=1, length=1024),
            timed("B 2, T 512", "softmax", 2 * 10**9, 0.021, "B 1, T 512", (2.0, 2.1), batch=2, length=512),
        ],
    }


def figure(made: dict[str, Any]) -> dict[str, str]:
    """The pictures of these tables: the text of each SVG by its stem."""
    verification = {"rope_precision": made["verification"]["made_up"]}
    files = [
        ledgers.compute(made["models"], ledger=made["ledger"]),
        rotation_pictures.compute(verification=verification),
        rope_pictures.compute(E1["printed"], experiment=made["experiment"]),
        softmax_pictures.compute(experiment=made["experiment"]),
        *(module.compute(study=made["study"]) for module in (checkpoint, extension, attention)),
        *(module.compute(timing=made["timing"]) for module in (attention_clock, matmul_scaling)),
    ]
    return {Path(path).stem: text for own in files for path, text in own.items() if path.endswith(".svg")}


@cache
def tables() -> dict[str, Any]:
    """The page's arguments, as the job gets them."""
    described = {name: model["spec"] for name, model in models().items()}
    runs = {
        "llama-3-8b": {
            "model": "llama-3-8b",
            "architecture": described["llama-3-8b"],
            "tokens": 15 * 10**12,
            "context": 8192,
            "devices": 16000,
            "flops_per_second_per_device": 400 * 10**12,
            "published_device_hours": 1300000,
        }
    }
    ledger = {
        "parameters": parameters.compute(described),
        "training_state": training_state.compute(described, RECIPES),
        "kv_cache": kv_cache.compute(described, WORKLOADS, CACHE_DTYPES),
        "matmul": matmul.compute(described, WORKLOADS),
        "training_compute": training_compute.compute(runs),
        "agreement": agreement.compute(described, WORKLOADS, CACHE_DTYPES),
        "conventions": conventions.compute(described, WORKLOADS),
        "activations": activations.compute(
            described,
            {"b1-t4096": WORKLOADS["b1-t4096"], "b1-t128": WORKLOADS["b1-t128"]},
            {"batch": 2, "tokens": 8, "dtypes": ["bf16"], "largest": LARGEST},
            {},
        ),
        "layout": [_row("ledger/layout", **row) for row in layout.compute(described, LAYOUTS)],
        "fit": [
            _row("ledger/fit", **row)
            for row in fit.compute(
                described,
                DEVICES,
                ["bf16"],
                WORKLOADS,
                CACHE_DTYPES,
                RECIPES,
            )
        ],
    }
    for row in ledger["parameters"]:
        row["executed"], row["difference"] = row["parameters"], 0
    softmax = blocked_softmax.compute(**E2)
    measured = cases()
    made = {
        "models": models(),
        "workloads": WORKLOADS,
        "training_runs": {
            name: {key: value for key, value in run.items() if key != "architecture"} for name, run in runs.items()
        },
        "recipes": RECIPES,
        "cache_dtypes": CACHE_DTYPES,
        "devices": DEVICES,
        "report": {"title": "Transformer Ledger", "whatif": {"model": "llama-3-8b"}},
        "verification": {"made_up": measured},
        "claims": {"claims": claims_table.compute(verification={"made_up": measured})},
        "ledger": ledger,
        "experiment": {
            "rope_dot_product": rope_dot_product.compute(**E1),
            "blocked_softmax": softmax["experiment/blocked_softmax"],
            "blocked_softmax_states": softmax["experiment/blocked_softmax_states"],
        },
        "timing": timing(),
        "study": study(),
        "provenance": {
            f"results/experiment/{name}.parquet": {
                "digest": "0" * 64,
                "sources": "1" * 64,
                "packages": {"numpy": "2.4.6"},
                "settings": settings,
                "inputs": {},
            }
            for name, settings in (("rope_dot_product", E1), ("blocked_softmax", E2))
        },
    }
    runs = {name: run for name, run in made["training_runs"].items() if run["model"] in made["models"]}
    formulas = algebra.compute(made["models"], RECIPES, runs, made["report"]["whatif"]["model"])
    return {**made, "figure": figure(made), "formulas": json.loads(formulas)}


__all__ = ["ARCHITECTURES", "CACHE_DTYPES", "DEVICES", "HOSTILE", "RECIPES", "models", "tables", "text_a", "text_b"]
