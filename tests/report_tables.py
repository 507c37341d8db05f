"""Input tables of the page for its tests: ledgers and experiments as the jobs compute them, made-up cases."""

from __future__ import annotations

from typing import Any

from transformer_ledger.cases import case
from transformer_ledger.claims import table as claims_table
from transformer_ledger.claims import text_a, text_b
from transformer_ledger.experiment import blocked_softmax, rope_dot_product
from transformer_ledger.ledger import agreement, kv_cache, matmul, parameters, training_compute, training_state
from transformer_ledger.model import from_architecture

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
HOSTILE = '<script>alert("1")</script>](x)&'
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
    for dtype, unit in (("fp64", 2.0**-53), ("fp32", 2.0**-24)):
        for octave in range(4, 21):
            where = f"position={2**octave} base=10000 d_h=128 dtype={dtype}"
            error = min(2.0, unit * 2.0**octave)
            rows.append(
                case(
                    "B4.4",
                    where,
                    "floating",
                    "largest error of cos and sin, positions of the octave",
                    error,
                    "<=",
                    2 * error,
                )
            )
    return rows


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
    }
    for row in ledger["parameters"]:
        row["executed"], row["difference"] = row["parameters"], 0
    softmax = blocked_softmax.compute(**E2)
    measured = cases()
    return {
        "models": models(),
        "workloads": WORKLOADS,
        "training_runs": {
            name: {key: value for key, value in run.items() if key != "architecture"} for name, run in runs.items()
        },
        "recipes": RECIPES,
        "cache_dtypes": CACHE_DTYPES,
        "report": {"title": "Transformer Ledger", "whatif": {"model": "llama-3-8b"}},
        "verification": {"made_up": measured},
        "claims": {"claims": claims_table.compute(verification={"made_up": measured})},
        "ledger": ledger,
        "experiment": {
            "rope_dot_product": rope_dot_product.compute(**E1),
            "blocked_softmax": softmax["experiment/blocked_softmax"],
            "blocked_softmax_states": softmax["experiment/blocked_softmax_states"],
        },
        "timing": {},
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


__all__ = ["ARCHITECTURES", "CACHE_DTYPES", "HOSTILE", "RECIPES", "models", "tables", "text_a", "text_b"]
