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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformer_ledger import config, headers, huggingface, limits
from transformer_ledger.formulas.training_compute import rule_flops
from transformer_ledger.keys import NoClosedForm
from transformer_ledger.ledger import (
    agreement,
    fit,
    kv_cache,
    layout,
    matmul,
    parameters,
    storage,
    stored,
    training_state,
)
from transformer_ledger.model import ModelError, ModelSpec

CONFIG = Path(__file__).resolve().parents[2] / "config.yaml"
RECIPES = Path(__file__).parent / "recipes.json"  # those of config.yaml, checked, for an installed package
SCHEMA = Path(__file__).parent / "size.schema.json"
UNIFORM = ("bf16",)  # types that are shown beside what the file stores
MODELS = CONFIG.parent / "resources" / "models"  # the shipped files
EXACT, COUNTED = "exact", "counted, no closed form"
EXAMPLE = """example:
  python -m transformer_ledger size resources/models/gpt-oss-20b.json --batch 32 --context 8192 --cache-dtype fp8

Two tiers. `exact`: a closed form, which every run of the pipeline compares with executed models; bytes and FLOPs are
exact. `counted, no closed form`: any other decoder that the installed transformers implements, built without weights
and counted in seconds, with eager attention; its backward pass with --execute. `active` leaves out the experts that a
token is not routed to.

Weights take what the file stores (torch_dtype and quantization_config), unless --dtype names one type for all. Of the
cache, `bytes` is what attention can still read (`needed`), `bytes_per_token` what the last token of the context adds to it
in one sequence (a full window adds nothing), `reserved_bytes` the full length in every layer, `state_bytes` what does not
grow. Types of GGUF files (q8_0, q4_0 …) are types too, and keys and values may have one each: q8_0/q4_0. Forward FLOPs are
those of a dense kernel; `causal_exact` counts the pairs that mask and window leave. A training recipe of config.yaml keeps
a state from step to step, without activations: `bytes` counts it once, `bytes_per_device` is the part of the fullest
device. With --layout, `cache_bytes_per_token` is the bytes that one more token of a sequence adds on the fullest device:
the mean over the last N tokens, rounded up, N being the `context` devices.

A directory with *.safetensors files is compared with the closed form, tensor by tensor; only their headers are read. Several
files make a table."""


def recipes() -> dict[str, dict[str, Any]]:
    """The checked recipes of the checkout's config.yaml, or those that an installed package ships.

    Raises ConfigError where the file or a recipe is wrong.
    """
    if CONFIG.exists():
        return config.section(CONFIG, "recipes")
    return dict(json.loads(RECIPES.read_text(encoding="utf-8")))


def _state(spec: ModelSpec, held: Mapping[str, Any], execution: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """For each recipe the sums over its items: bytes, bytes of the fullest device, executed bytes."""
    state: dict[str, dict[str, int]] = {}
    for row in training_state.compute({spec.name: spec.to_json()}, dict(held), execution):
        sums = state.setdefault(row["recipe"], {"bytes": 0, "bytes_per_device": 0, "devices": row["devices"]})
        for name in ("bytes", "bytes_per_device", *(["executed_bytes"] if execution else [])):
            sums[name] = sums.get(name, 0) + row[name]
    return state


def _weights(spec: ModelSpec, notes: list[str], dtype: str | None, raw: Mapping[str, Any] | None) -> dict[str, Any]:
    """Bytes of the weights: as the file stores them where there is one, and at one type for all."""
    made: dict[str, Any] = {}
    if raw is not None:
        found = stored.stored(spec, raw, notes)
        if more := stored.multi_token(spec, raw):
            notes.append(
                f"num_nextn_predict_layers: {more} numbers more in a checkpoint, copies of embedding and head too"
            )
        made = {"stored_as": found.name, "stored": {**found.parts, "all": found.bytes}}
    uniform = dict.fromkeys((*(["bf16"] if dtype is None else [dtype]), *UNIFORM))
    return {**made, "uniform": {name: fit.weight_bytes(spec, name) for name in uniform}}


def sizes(
    spec: ModelSpec,
    notes: list[str],
    batch: int,
    context: int,
    dtype: str | None,
    cache_dtype: str,
    raw: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Every total of one model, exact: parameters, bytes [byte], matrix-product work [FLOP].

    `dtype` None: the weights take what the file `raw` says. Raises ValueError for an unknown dtype.
    """
    dtype = UNIFORM[0] if dtype is None and raw is None else dtype
    total, active = parameters.totals(spec)
    components: dict[str, int] = {}
    for row in parameters.compute({spec.name: spec.to_json()}):
        components[row["component"]] = components.get(row["component"], 0) + row["parameters"]
    weights = _weights(spec, notes, dtype, raw)
    chosen = weights["stored"]["all"] if dtype is None else weights["uniform"][dtype]

    def cached(policy: str) -> int:
        return int(kv_cache.cache_bytes(spec, batch, context, cache_dtype, policy))

    state = cached("state")

    def work(phase: str, convention: str = "full") -> int:
        return matmul.total(spec, batch, context, phase, convention)

    return {
        "tier": EXACT,
        "input": _input(spec.name, batch, context, dtype or f"as stored: {weights['stored_as']}", cache_dtype),
        "parameters": {"total": total, "active": active, "components": components, "bytes": chosen},
        "weights": weights,
        "kv_cache": {
            "bytes": cached("needed") - state,
            "bytes_per_token": kv_cache.bytes_per_token(spec, context, cache_dtype, "needed") - state * (context == 1),
            "reserved_bytes": cached("reserved") - state,
            **({"state_bytes": state} if state else {}),
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


def _input(name: str, batch: int, context: int, dtype: str, cache_dtype: str) -> dict[str, Any]:
    return {"model": name, "batch": batch, "context": context, "dtype": dtype, "cache_dtype": cache_dtype}


def counted(
    name: str, raw: Mapping[str, Any], reason: str, batch: int, context: int, options: argparse.Namespace
) -> dict[str, Any]:
    """The same of a model that has no closed form for a `reason`: what transformers' model of the file has and runs.

    A backward pass, which takes most of the time, is counted where `options.execute` asks for it. Raises ModelError or
    TableError where transformers has no such model, or it cannot be counted.
    """
    from transformer_ledger.executed import counted as executed

    dtype, cache_dtype = options.dtype, options.cache_dtype
    if "/" in cache_dtype:
        raise ModelError("cache-dtype", f"{cache_dtype}: a type each for keys and values needs a closed form; {reason}")
    found = executed.compute(name, raw, batch, context, options.execute)
    notes = [f"{COUNTED}: {reason.partition('; known')[0]}"]
    notes.append(f"counted: transformers’ {found['class']}; what the file leaves out is as that class has it")
    if found["unused"]:
        notes.append(f"not used: {', '.join(found['unused'])}; no tensor of that class follows them")
    if found["every_expert_runs"]:
        notes.append("matmul: this implementation runs every expert for every token, and all of them are counted")
    stored_as, total = dtype or stored.file_type(raw, notes), found["total"]
    if dtype is None and stored.quantization(raw):
        notes.append(f"quantization_config: not followed without a closed form; bytes are those of {stored_as}")
    number = storage.bytes_per_number(cache_dtype) / 2  # it is counted in bf16
    return {
        "tier": COUNTED,
        "input": _input(name, batch, context, dtype or f"as stored: {stored_as}", cache_dtype),
        "parameters": {
            "total": total,
            **({} if found["active"] is None else {"active": found["active"]}),
            "components": found["components"],
            "bytes": storage.whole(total * storage.bytes_per_number(stored_as)),
        },
        "kv_cache": {
            "bytes": storage.whole(found["bytes"] * number),
            "bytes_per_token": storage.whole(found["bytes_per_token"] * number),
            "state_bytes": found["state_bytes"],
        },
        "matmul": {key: value for key, value in found.items() if key.endswith("_flops")},
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


def executed(
    spec: ModelSpec, raw: dict[str, Any] | None, batch: int, context: int, cache_dtype: str
) -> list[dict[str, Any]]:
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
    given, tier = found["input"], found["tier"]
    first = "{model}: {batch:,} × {context:,} tokens, weights {dtype}, cache {cache_dtype}".format(**given)
    states = found.get("training_state", {})
    alone = {name: {"bytes": held["bytes"]} for name, held in states.items() if held["devices"] == 1}
    numbers = {name: value for name, value in found.items() if name not in ("input", "checkpoint")}
    named = list(_lines({**numbers, "training_state": {**states, **alone}}))
    wide, digits = max(len(name) for name, _ in named), max(len(f"{value:,}") for _, value in named)
    mark = "" if tier == EXACT else f"  ({tier})"
    lines = [f"{name:{wide}}  {value:{digits},}  {_readable(name, value)}".rstrip() + mark for name, value in named]
    for row in found.get("executed", []):
        where = ".".join(filter(None, (row["quantity"], row["phase"], row["policy"])))
        lines.append(
            f"executed by {row['implementation']}: {where} {row['executed']:,}, difference {row['difference']:,}"
        )
    return "\n".join([first, *(f"defaulted: {note}" for note in found["defaulted"]), *lines, *_checkpoint(found)])


def _checkpoint(found: Mapping[str, Any]) -> Iterator[str]:
    """Lines on the files of a checkpoint, and the first names of each kind of difference."""
    held = found.get("checkpoint")
    if not held:
        return
    yield (
        f"checkpoint: {held['files']} files, {held['tensors']:,} tensors, {held['bytes']:,} bytes; "
        f"{held['parameters']:,} numbers, {held['closed_form_parameters']:,} in the closed form"
    )
    if not held["by_name"]:
        yield (
            f"checkpoint: {held['model_bytes']:,} bytes of the model’s tensors, {held['closed_form_bytes']:,} in the closed form; "
            f"names are not compared: {'it is quantised' if held['quantised'] else 'unknown for this family'}"
        )
    for kind in ("missing", "extra", "shape", "type", "tied_copies", "buffers", "multi_token"):
        names = held.get(kind)
        if names:
            shown = ", ".join(names[: headers.SHOWN]) + " …" * (len(names) > headers.SHOWN)
            yield f"checkpoint {kind}: {len(names):,}: {shown}"


COLUMNS = {
    "model": ("input", "model"),
    "parameters": ("parameters", "total"),
    "active": ("parameters", "active"),
    "weight bytes": ("parameters", "bytes"),
    "cache bytes": ("kv_cache", "bytes"),
    "a token": ("kv_cache", "bytes_per_token"),
    "forward FLOPs": ("matmul", "forward_flops"),
    "decode FLOPs": ("matmul", "decode_flops"),
    "tier": ("tier",),
}


def table(every: Sequence[Mapping[str, Any]]) -> str:
    """One line a model, of its main figures."""

    def cell(found: Mapping[str, Any], path: tuple[str, ...]) -> str:
        value: Any = found
        for key in path:
            value = value.get(key, "")
        return f"{value:,}" if isinstance(value, int) else str(value)

    rows = [list(COLUMNS), *([cell(found, path) for path in COLUMNS.values()] for found in every)]
    wide = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    right = range(1, len(COLUMNS) - 1)
    lines = [
        "  ".join(text.rjust(wide[i]) if i in right else text.ljust(wide[i]) for i, text in enumerate(row)).rstrip()
        for row in rows
    ]
    given = every[0]["input"]
    return "\n".join([f"{given['batch']:,} sequences, cache {given['cache_dtype']}", *lines])


def _near(path: Path) -> str:
    """A file that may have been meant, among the shipped ones and those in its folder; none where it is there itself."""
    files = {file.stem: file for folder in (MODELS, path.parent) for file in sorted(folder.glob("*.json"))}
    found = [] if os.path.exists(path) else difflib.get_close_matches(path.stem, files, 1)
    return f"; did you mean {files[found[0]]}?" if found else ""


def _dtype(value: str) -> str:
    try:
        return storage.known(value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _cache_dtype(value: str) -> str:
    """One type, or one for keys and one for values: q8_0/q4_0."""
    parts = [_dtype(part) for part in value.split("/", 1)]
    return parts[0] if len(set(parts)) == 1 else "/".join(parts)


def _layout(value: str) -> layout.Layout:
    try:
        return layout.Layout.parse(value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _positive(value: str) -> int:
    if not re.fullmatch("[1-9][0-9]{0,8}", value):
        raise argparse.ArgumentTypeError(f"{value[:40]!r} is not an integer from 1 to 999999999")
    return int(value)


class _Schema(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(SCHEMA.read_text(encoding="utf-8"), end="")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m transformer_ledger size",
        description="Parameters, weights, KV cache, matrix-multiply work and training state of one config.json, or more.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "config", type=Path, nargs="+", help="a Hugging Face config.json, or the folder of a checkpoint"
    )
    parser.add_argument("--batch", type=_positive, default=1, help="sequences (default: 1)")
    parser.add_argument("--context", type=_positive, help="positions of each (default: 4096, or the model's fewer)")
    parser.add_argument(
        "--dtype", type=_dtype, help="of all weights: bf16, fp8, q4_0 … (default: as the file stores them)"
    )
    parser.add_argument(
        "--cache-dtype",
        type=_cache_dtype,
        default="bf16",
        help="of the cache: bf16, fp8, int8, int4-g64, q8_0 …, or of keys and of values: q8_0/q4_0 (default: bf16)",
    )
    parser.add_argument(
        "--layout",
        type=_layout,
        help="degrees of several devices, for the fullest: tensor=4,pipeline=2,expert=8,data=2",
    )
    parser.add_argument("--json", action="store_true", help="JSON instead of lines: an object, of several files a list")
    parser.add_argument("--schema", action=_Schema, nargs=0, help="print the JSON Schema of that object, and end")
    parser.add_argument("--execute", action="store_true", help="run the model on the meta device and compare (seconds)")
    return parser


def _read(path: Path) -> tuple[str, dict[str, Any], list[Path]]:
    """Name, config.json and checkpoint files of what a path names. The files of a folder without config.json describe a
    model of our own, or it is refused."""
    if not path.is_dir():
        return limits.shown(path.stem, 200), huggingface.parsed(limits.text(path)), []
    paths = headers.files(path)
    raw = huggingface.parsed(limits.text(path / "config.json")) if (path / "config.json").exists() or not paths else {}
    return limits.shown(path.resolve().name, 200), raw, paths


def one(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Everything about one file or folder.

    Raises ModelError, ConfigError, TableError, OSError or ValueError where it is wrong.
    """
    name, raw, paths = _read(path)
    batch, cache = options.batch, options.cache_dtype
    own = headers.described(paths) if not raw else None
    try:
        spec, notes = (own, []) if own else huggingface.read(name, raw)
    except NoClosedForm as error:
        if options.layout:
            raise ModelError("layout", f"only models with a closed form are spread; {error}") from None
        reason, length = f"{error.key}: {error}", options.context or 4096
        return _ran(counted, name, raw, reason, batch, length, options, reason=reason)
    context = options.context or min(4096, spec.context)
    notes = [*notes, *beyond(spec, context)]
    spec = replace(spec, context=max(spec.context, context))
    found = sizes(spec, notes, batch, context, options.dtype or ("fp32" if own else None), cache, None if own else raw)
    if options.layout:
        weights = options.dtype or UNIFORM[0]
        whole = {name: recipe for name, recipe in recipes().items() if not recipe.get("lora")}
        spread = layout.sizes(spec, options.layout, batch, context, weights, cache, whole)
        found["fullest_device"] = spread
        missing = layout.untrained(spec, options.layout, layout.COMPUTED[0])
        notes.append(
            f"layout: weights of the fullest device in {weights}; {missing or 'activations in bf16, no work space'}"
        )
    if paths:
        stored_bytes = found["weights"]["uniform"]["fp32"] if own else found["weights"]["stored"]["all"]
        kind = "" if own else huggingface.text_part(raw, [])["model_type"]
        found["checkpoint"] = headers.compared(spec, kind, raw, paths, stored_bytes)
    if options.execute:
        ran = cache if cache.partition("-g")[0] in storage.BITS else "bf16"
        if ran != cache:
            notes.append(f"executed: caches in {ran}; none is executed in {cache}")
        found["executed"] = _ran(executed, spec, raw if not own else None, batch, context, ran)
    return found


def of(path: str | Path, **options: Any) -> dict[str, Any]:
    """Everything about a config.json or the folder of a checkpoint, as `size --json` prints it.

    `options` are those of the command: batch, context, dtype, cache_dtype, layout, execute; None is the
    default. Raises ModelError (a ValueError), another ValueError or OSError where the file or an option is wrong.
    """
    words = []
    for name, value in options.items():
        if value is None:
            continue
        flag = f"--{name.replace('_', '-')}"
        words += [flag] * bool(value) if isinstance(value, bool) else [flag, str(value)]
    parser = _parser()
    parser.exit_on_error = False
    try:
        parsed, unknown = parser.parse_known_args([str(path), *words])
    except argparse.ArgumentError as error:
        raise ValueError(str(error)) from None
    if unknown:
        raise ValueError(f"{' '.join(unknown)}: no option of size")
    return one(Path(path), parsed)


def _ran(function: Callable[..., Any], *arguments: Any, reason: str = "") -> Any:
    """What a function that executes returns. Raises ValueError, with the reason why it was asked, for what it cannot do."""
    from transformer_ledger.tables import TableError  # costs a fifth of the whole command

    try:
        return function(*arguments)
    except TableError as error:
        raise ValueError(f"{reason}; {error}" if reason else str(error)) from None


def main(arguments: list[str]) -> int:
    """The command; 1 with one message a file where a file or a value is wrong, or a difference was found."""
    options = _parser().parse_args(arguments)
    every: list[dict[str, Any]] = []
    for path in options.config:
        try:
            every.append(one(path, options))
        except config.ConfigError as error:
            print(error, file=sys.stderr)
            return 1
        except (ValueError, OSError, ImportError) as error:
            print(f"{limits.shown(path, 200)}: {_reason(error, path)}", file=sys.stderr)
    if options.json and every:
        print(json.dumps(every[0] if len(options.config) == 1 else every, indent=1, ensure_ascii=False))
    elif every:
        print(text(every[0]) if len(options.config) == 1 else table(every))
    differs = any(row["difference"] for found in every for row in found.get("executed", []))
    other = any(not headers.agrees(found["checkpoint"]) for found in every if "checkpoint" in found)
    return int(differs or other or len(every) < len(options.config))


def _reason(error: Exception, path: Path) -> str:
    """One message of what was wrong with a file."""
    if isinstance(error, ModelError):
        return f"{error.key}: {error}" if error.key else str(error)
    if isinstance(error, UnicodeDecodeError):
        return "not a text file"
    if isinstance(error, OSError):
        return f"{error.strerror or error}{_near(path)}"
    if isinstance(error, ImportError):
        return f"it has no closed form here, and counting it needs torch and transformers: {error}"
    return str(error)
