"""One model at once, without a workflow: `python -m transformer_ledger size path/to/config.json`.

The same closed forms as the ledgers, and with --execute the same executed model; torch is imported only then.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformer_ledger import config, huggingface, limits
from transformer_ledger.formulas.training_compute import rule_flops
from transformer_ledger.ledger import agreement, fit, kv_cache, matmul, parameters, storage, training_state
from transformer_ledger.model import ModelError, ModelSpec

CONFIG = Path(__file__).resolve().parents[2] / "config.yaml"
MODELS = CONFIG.parent / "resources" / "models"  # the shipped files
EXAMPLE = """example:
  python -m transformer_ledger size resources/models/gpt-oss-20b.json --batch 32 --context 8192 --cache-dtype fp8

Bytes and FLOPs are exact. `active` leaves out the experts that a token is not routed to. Of the cache, `bytes` is what
attention can still read (`needed`), `bytes_per_token` what the last token of the context adds to it in one sequence (a
full window adds nothing), `reserved_bytes` the full length in every layer. Forward FLOPs are those of a dense kernel;
`causal_exact` counts the pairs that mask and window leave. A training recipe of config.yaml counts its state
once (`bytes`), and as its fullest device holds it (`bytes_per_device`): no activations."""


def recipes() -> dict[str, dict[str, Any]]:
    """The checked recipes of the checkout's config.yaml; none where the package is installed without one.

    Raises ConfigError where the file or a recipe is wrong.
    """
    return config.section(CONFIG, "recipes") if CONFIG.exists() else {}


def _state(spec: ModelSpec, held: Mapping[str, Any], execution: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """For each recipe the sums over its items: bytes, bytes of the fullest device, executed bytes."""
    state: dict[str, dict[str, int]] = {}
    for row in training_state.compute({spec.name: spec.to_json()}, dict(held), execution):
        sums = state.setdefault(row["recipe"], {"bytes": 0, "bytes_per_device": 0, "devices": row["devices"]})
        for name in ("bytes", "bytes_per_device", *(["executed_bytes"] if execution else [])):
            sums[name] = sums.get(name, 0) + row[name]
    return state


def sizes(spec: ModelSpec, notes: list[str], batch: int, context: int, dtype: str, cache_dtype: str) -> dict[str, Any]:
    """Every total of one model, exact: parameters, bytes [byte], matrix-product work [FLOP].

    Raises ValueError for an unknown dtype.
    """
    total, active = parameters.totals(spec)
    components: dict[str, int] = {}
    for row in parameters.compute({spec.name: spec.to_json()}):
        components[row["component"]] = components.get(row["component"], 0) + row["parameters"]

    def work(phase: str, convention: str = "full") -> int:
        return matmul.total(spec, batch, context, phase, convention)

    return {
        "input": {
            "model": spec.name,
            "batch": batch,
            "context": context,
            "dtype": dtype,
            "cache_dtype": cache_dtype,
        },
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
        "training_state": _state(spec, recipes()),
        "defaulted": notes,
    }


def beyond(spec: ModelSpec, context: int) -> list[str]:
    """A note on positions past the model's own. Raises ValueError where it has a table of positions, which then ends."""
    if context <= spec.context:
        return []
    words = f"{context} is longer than the model's {spec.context}"
    if spec.positions == "learned":
        raise ValueError(f"--context {words}; it learned that many positions, and has no others")
    return [f"context: {words}; sized as asked, whatever the model makes of it"]


def executed(spec: ModelSpec, raw: dict[str, Any], batch: int, context: int, cache_dtype: str) -> list[dict[str, Any]]:
    """What the executed models count, beside the ledger's total and the difference.

    Raises TableError where the model cannot be run.
    """
    from transformer_ledger.executed import run

    workloads, held = {"size": {"batch": batch, "context": context}}, recipes()
    model = json.loads(json.dumps(spec.to_json()))
    rows = run.compute(model, raw, workloads, held, [cache_dtype])
    made = agreement.compute({spec.name: model}, workloads, [cache_dtype], {spec.name: rows})
    for recipe, sums in _state(spec, held, {spec.name: rows}).items():
        ledger, counted = sums["bytes"], sums["executed_bytes"]
        row = {"implementation": "ours", "quantity": "state_bytes", "workload": "", "phase": recipe, "policy": ""}
        made.append({**row, "ledger": ledger, "executed": counted, "difference": ledger - counted})
    return [{key: value for key, value in row.items() if key != "model"} for row in made]


def _readable(name: str, value: int) -> str:
    """Bytes in GiB and GB, FLOPs in powers of ten; nothing for a small number or a plain count."""
    if "bytes" in name and value >= 2**20:
        return f"{value / 2**30:,.2f} GiB = {value / 1e9:,.2f} GB"
    return f"{value:.4g} FLOP" if "flops" in name else ""


def _lines(found: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Every number with its dotted name."""
    for name, value in found.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", number) for inner, number in _lines(value))
        elif isinstance(value, int):
            yield name, value


def text(found: Mapping[str, Any]) -> str:
    """The sizes as lines of `name value`, integers grouped, large ones also in a larger unit; first what they are of."""
    given = found["input"]
    first = "{model}: {batch:,} × {context:,} tokens, weights {dtype}, cache {cache_dtype}".format(**given)
    alone = {name: {"bytes": held["bytes"]} for name, held in found["training_state"].items() if held["devices"] == 1}
    numbers = {name: value for name, value in found.items() if name != "input"}
    named = list(_lines({**numbers, "training_state": {**found["training_state"], **alone}}))
    wide, digits = max(len(name) for name, _ in named), max(len(f"{value:,}") for _, value in named)
    lines = [f"{name:{wide}}  {value:{digits},}  {_readable(name, value)}".rstrip() for name, value in named]
    for row in found.get("executed", []):
        where = ".".join(filter(None, (row["quantity"], row["phase"], row["policy"])))
        lines.append(
            f"executed by {row['implementation']}: {where} {row['executed']:,}, difference {row['difference']:,}"
        )
    return "\n".join([first, *(f"defaulted: {note}" for note in found["defaulted"]), *lines])


def _near(path: Path) -> str:
    """A file that may have been meant, among the shipped ones and those in its folder; none where it is there itself."""
    files = {file.stem: file for folder in (MODELS, path.parent) for file in sorted(folder.glob("*.json"))}
    found = [] if os.path.exists(path) else difflib.get_close_matches(path.stem, files, 1)
    return f"; did you mean {files[found[0]]}?" if found else ""


def _shown(name: object) -> str:
    """A file's name as a message or a table may show it: no control characters, and not without end."""
    text = str(name) if str(name).isprintable() else repr(str(name))
    return text if len(text) <= 200 else f"{text[:99]}…{text[-100:]}"


def _dtype(value: str) -> str:
    try:
        storage.split(value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return value


def _positive(value: str) -> int:
    if not re.fullmatch("[1-9][0-9]{0,8}", value):
        raise argparse.ArgumentTypeError(f"{value[:40]!r} is not an integer from 1 to 999999999")
    return int(value)


def main(arguments: list[str]) -> int:
    """The command; 1 with one message where the file or a value is wrong, or a difference was found."""
    parser = argparse.ArgumentParser(
        prog="python -m transformer_ledger size",
        description="Parameters, KV cache, matrix-multiply work and training state of one config.json, exact.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("config", type=Path, help="a Hugging Face config.json")
    parser.add_argument("--batch", type=_positive, default=1, help="sequences (default: 1)")
    parser.add_argument("--context", type=_positive, help="positions of each (default: 4096, or the model's fewer)")
    parser.add_argument("--dtype", type=_dtype, default="bf16", help="of the weights (default: bf16)")
    parser.add_argument(
        "--cache-dtype", type=_dtype, default="bf16", help="of the cache: bf16, fp8, int8, int4-g64 … (default: bf16)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    parser.add_argument("--execute", action="store_true", help="run the model on the meta device and compare (seconds)")
    options = parser.parse_args(arguments)

    def wrong(reason: object) -> int:
        print(f"{_shown(options.config)}: {reason}", file=sys.stderr)
        return 1

    try:
        raw = huggingface.parsed(limits.text(options.config))
        spec, notes = huggingface.read(_shown(options.config.stem), raw)
        context = options.context or min(4096, spec.context)
        notes += beyond(spec, context)
        spec = replace(spec, context=max(spec.context, context))
        found = sizes(spec, list(notes), options.batch, context, options.dtype, options.cache_dtype)
        if options.execute:
            from transformer_ledger.tables import TableError  # costs a fifth of the whole command

            try:
                found["executed"] = executed(spec, raw, options.batch, context, options.cache_dtype)
            except TableError as error:
                return wrong(error)
    except config.ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    except ModelError as error:
        return wrong(f"{error.key}: {error}" if error.key else error)
    except UnicodeDecodeError:
        return wrong("not a text file")
    except OSError as error:
        return wrong(f"{error.strerror or error}{_near(options.config)}")
    except ValueError as error:
        return wrong(error)
    print(json.dumps(found, indent=1, ensure_ascii=False) if options.json else text(found))
    return int(any(row["difference"] for row in found.get("executed", [])))
