"""One model at once, without a workflow: `python -m transformer_ledger size path/to/config.json`.

The same closed forms as the ledgers, and with --execute the same executed model; torch is imported only then.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from transformer_ledger import huggingface
from transformer_ledger.formulas.training_compute import rule_flops
from transformer_ledger.ledger import agreement, fit, kv_cache, matmul, parameters, training_state
from transformer_ledger.model import ModelError, ModelSpec

# The shipped recipes of config.yaml that need no choice of devices.
RECIPES: dict[str, dict[str, Any]] = {
    "adamw-fp32": {"weights": "fp32", "gradients": "fp32", "optimizer": "adamw", "moments": "fp32"},
    "adamw-bf16": {"weights": "bf16", "gradients": "bf16", "optimizer": "adamw", "moments": "bf16"},
    "adamw-bf16-master": {
        "weights": "bf16",
        "gradients": "bf16",
        "optimizer": "adamw",
        "moments": "fp32",
        "master_weights": "fp32",
    },
}


def sizes(
    spec: ModelSpec, notes: list[str], batch: int, context: int, dtype: str, cache_dtype: str
) -> dict[str, dict[str, Any] | Any]:
    """Every total of one model, exact: parameters, bytes [byte], matrix-product work [FLOP].

    Raises ValueError for an unknown dtype.
    """
    total, active = parameters.totals(spec)
    components: dict[str, int] = {}
    for row in parameters.compute({spec.name: spec.to_json()}):
        components[row["component"]] = components.get(row["component"], 0) + row["parameters"]
    state: dict[str, dict[str, int]] = {}
    for row in training_state.compute({spec.name: spec.to_json()}, RECIPES):
        state.setdefault(row["recipe"], {"bytes": 0})["bytes"] += row["bytes"]

    def work(phase: str, convention: str = "full") -> int:
        return matmul.total(spec, batch, context, phase, convention)

    return {
        "parameters": {
            "total": total,
            "active": active,
            "components": components,
            "bytes": fit.weight_bytes(spec, dtype),
        },
        "kv_cache": {
            "bytes": kv_cache.cache_bytes(spec, batch, context, cache_dtype, "needed"),
            "bytes_per_token": kv_cache.bytes_per_token(spec, context, cache_dtype, "needed"),
            "reserved_bytes": kv_cache.cache_bytes(spec, batch, context, cache_dtype, "reserved"),
        },
        "matmul": {
            "forward_flops": work("prefill"),
            "forward_flops_causal_exact": work("prefill", "causal-exact"),
            "decode_flops": work("decode"),
            "training_flops": work("train"),
            "training_flops_causal_exact": work("train", "causal-exact"),
            "rule_6nd_flops": rule_flops(active, batch * context),
        },
        "training_state": state,
        "defaulted": notes,
    }


def executed(spec: ModelSpec, raw: dict[str, Any], batch: int, context: int, cache_dtype: str) -> list[dict[str, Any]]:
    """What the executed models count, beside the ledger's total and the difference."""
    from transformer_ledger.executed import run

    workloads = {"size": {"batch": batch, "context": context}}
    model = json.loads(json.dumps(spec.to_json()))
    rows = run.compute(model, raw, workloads, RECIPES, [cache_dtype])
    checked = agreement.compute({spec.name: model}, workloads, [cache_dtype], {spec.name: rows})
    return [{key: value for key, value in row.items() if key != "model"} for row in checked]


def text(found: dict[str, Any]) -> str:
    """The sizes as lines of `name value`, integers grouped."""
    lines = []
    for section, values in found.items():
        if section == "defaulted":
            lines += [f"defaulted: {note}" for note in values]
        elif section == "executed":
            off = [row for row in values if row["difference"]]
            lines.append(f"{'executed':44}{len(values) - len(off):>28,} totals agree, {len(off)} differ")
            lines += [f"  {row}" for row in off]
        else:
            for name, value in values.items():
                inner = value.items() if isinstance(value, dict) else [("", value)]
                for part, number in inner:
                    label = f"{section}.{name}" + (f".{part}" if part else "")
                    lines.append(f"{label:44}{number:>28,}")
    return "\n".join(lines)


def _at_least_one(value: str) -> int:
    if not value.isdigit() or int(value) < 1:
        raise argparse.ArgumentTypeError(f"{value!r} is not an integer from 1")
    return int(value)


def main(arguments: list[str]) -> int:
    """The command; 1 with one message where the file or a value is wrong."""
    parser = argparse.ArgumentParser(prog="transformer_ledger size", description=__doc__)
    parser.add_argument("config", type=Path, help="a Hugging Face config.json")
    parser.add_argument("--batch", type=_at_least_one, default=1, help="sequences (default: 1)")
    parser.add_argument("--context", type=_at_least_one, help="positions of each (default: 4096, or the model's fewer)")
    parser.add_argument("--dtype", default="bf16", help="of the weights (default: bf16)")
    parser.add_argument(
        "--cache-dtype", default="bf16", help="of the cache: bf16, fp8, int8, int4-g64 … (default: bf16)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    parser.add_argument("--execute", action="store_true", help="run the model on the meta device and compare (seconds)")
    options = parser.parse_args(arguments)
    try:
        raw = json.loads(options.config.read_text(encoding="utf-8"))
        if not isinstance(raw, dict):
            raise ValueError("not a JSON object")
        spec, notes = huggingface.read(options.config.stem, raw)
        context = options.context or min(4096, spec.context)
        if context > spec.context:
            raise ValueError(f"--context {context} is longer than the model's {spec.context}")
        found = sizes(spec, list(notes), options.batch, context, options.dtype, options.cache_dtype)
        if options.execute:
            found["executed"] = executed(spec, raw, options.batch, context, options.cache_dtype)
    except ModelError as error:
        print(f"{options.config}: {error.key}: {error}" if error.key else f"{options.config}: {error}", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        print(f"{options.config}: {reason}", file=sys.stderr)
        return 1
    print(json.dumps(found, indent=1, ensure_ascii=False) if options.json else text(found))
    return 0
