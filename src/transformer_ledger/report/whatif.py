"""The page's calculator: the ledgers' own functions, run once on symbols, as JavaScript that is exact in integers.

A model keeps its structure (which tensors and products exist); its sizes become symbols. `vary` makes the same model
with integers, so that a test can hold the browser's answers against the ledgers'.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import sympy

from transformer_ledger.formulas import training_compute, training_state
from transformer_ledger.ledger import kv_cache, matmul, parameters
from transformer_ledger.ledger.storage import BITS, bytes_per_number
from transformer_ledger.ledger.training_state import SHARDED_FROM, items
from transformer_ledger.model import Layer, ModelSpec
from transformer_ledger.symbolic import expression, javascript, symbol

SIZES = ("L", "d", "h", "h_kv", "d_h", "f", "V", "C", "w", "E", "k")
"""Sizes of a model that the calculator can change, where the model has them."""


HELPERS = """const floorDiv = (a, b) => (b < 0n ? floorDiv(-a, -b) : a >= 0n ? a / b : -((b - 1n - a) / b));
const least = (...all) => all.reduce((a, b) => (b < a ? b : a));
const greatest = (...all) => all.reduce((a, b) => (b > a ? b : a));
"""
"""What `symbolic.javascript` needs in scope; BigInt division alone rounds towards zero."""


def _main(spec: ModelSpec) -> Layer:
    """The most frequent kind of layer, the one whose sizes are changed."""
    return max(spec.kinds(), key=lambda pair: pair[0])[1]


def sizes(spec: ModelSpec) -> dict[str, int]:
    """The model's own values of the sizes that it has."""
    a, ff = _main(spec).attention, _main(spec).feedforward
    found = {"L": spec.depth, "d": spec.d_model, "h": a.heads, "h_kv": a.kv_heads, "d_h": a.head_dim, "f": ff.width}
    if a.latent:  # K/V heads and their width are ranks there, and stay as they are
        del found["h_kv"], found["d_h"]
    found["V"] = spec.vocabulary
    if spec.positions == "learned":
        found["C"] = spec.position_rows
    if a.window is not None:
        found["w"] = a.window
    if ff.experts:
        found |= {"E": ff.experts, "k": ff.experts_per_token}
    return found


def vary(spec: ModelSpec, values: Mapping[str, Any]) -> ModelSpec:
    """The model with other sizes, integers or symbols.

    Layers of every kind change where they share the size of the most frequent kind; L counts that kind, the others'
    numbers stay.
    """
    main = _main(spec)

    def size(name: str, own: Any, reference: Any) -> Any:
        return values[name] if name in values and own == reference else own

    def layer(kind: Layer) -> Layer:
        a, ff, base, wide = kind.attention, kind.feedforward, main.attention, main.feedforward
        return dataclasses.replace(
            kind,
            attention=dataclasses.replace(
                a,
                heads=size("h", a.heads, base.heads),
                kv_heads=size("h_kv", a.kv_heads, base.kv_heads),
                head_dim=size("d_h", a.head_dim, base.head_dim),
                window=size("w", a.window, base.window),
            ),
            feedforward=dataclasses.replace(
                ff,
                width=size("f", ff.width, wide.width),
                experts=size("E", ff.experts, wide.experts),
                experts_per_token=size("k", ff.experts_per_token, wide.experts_per_token),
            ),
        )

    others = sum(count for count, kind in spec.kinds() if kind != main)
    runs = [(values["L"] - others if kind == main else count, layer(kind)) for count, kind in spec.kinds()]
    return dataclasses.replace(
        spec,
        d_model=values["d"],
        vocabulary=values["V"],
        position_rows=values["C"] if spec.positions == "learned" else spec.position_rows,
        layers=tuple(runs),
    )


def quantities(spec: ModelSpec, B: Any, T: Any, b: Any) -> dict[str, Any]:
    """What the ledgers say about a model: integers for integers, expressions for symbols.

    B sequences of T tokens; b bytes for one number of the cache.
    """
    every, active = parameters.totals(spec)
    cache = sum(
        count * formula(B=B, T=T, b=b, **arguments)
        for count, (formula, arguments) in (
            (count, kv_cache.layer(kind.attention, "needed")) for count, kind in spec.kinds()
        )
    )
    return {
        "parameters": every,
        "active": active,
        "tensors": parameters.tensor_count(spec),
        "rule": training_compute.rule_parameters(spec.depth, spec.d_model, spec.vocabulary),
        "cache": cache,
        "prefill": matmul.total(spec, B, T, "prefill"),
        "decode": matmul.total(spec, B, T, "decode"),
        # One sequence: what a training token costs does not depend on the batch.
        "train": matmul.total(spec, 1, T, "train"),
    }


def state(recipe: Mapping[str, Any], N: Any, n: Any, G: Any) -> dict[str, Any]:
    """Bytes of a training recipe for N parameters in n tensors: in all, and the largest share of G devices."""
    total: Any = 0
    share: Any = 0
    for item, dtype in items(recipe).items():
        b = bytes_per_number(dtype)
        size = training_state.per_tensor(n, b) if item == "step" else training_state.per_parameter(N, b)
        total += size
        sharded = recipe.get("zero_stage", 0) >= SHARDED_FROM.get(item, 1)
        share += training_state.sharded(N, G, b) if sharded else size
    return {"total": total, "share": share}


def _function(expr: Any) -> str:
    expr = sympy.sympify(expr)
    names = sorted(s.name for s in expr.free_symbols)
    return f"({{{', '.join(names)}}}) => {javascript(expr)}"


def _object(members: Mapping[str, str]) -> str:
    return "{" + ",\n".join(f"{quoted(name)}: {text}" for name, text in members.items()) + "}"


def quoted(value: Any) -> str:
    """JSON that is also safe inside a script element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return (
        text.replace("<", "\\u003c")
        .replace(">", "\\u003e")
        .replace("&", "\\u0026")
        .replace("\u2028", "\\u2028")
        .replace("\u2029", "\\u2029")
    )


def script(models: Mapping[str, Mapping[str, Any]], recipes: Mapping[str, Any]) -> str:
    """JavaScript defining FORMULAS: for each model its functions, for each recipe its bytes, and the rules.

    Every function takes one object of BigInts and returns [numerator, denominator]; a number of the cache has
    b_above / b_below bytes.
    """
    symbols = {name: symbol(name) for name in (*SIZES, "B", "T", "b", "N", "n", "G")}
    above, below = (sympy.Symbol(name, integer=True, positive=True) for name in ("b_above", "b_below"))
    per_model = {}
    for name, model in models.items():
        spec = ModelSpec.from_json(model["spec"])
        varied = vary(spec, {size: symbols[size] for size in sizes(spec)})
        found = quantities(varied, symbols["B"], symbols["T"], symbols["b"])
        found["cache"] = sympy.sympify(found["cache"]).subs(symbols["b"], above / below)
        per_model[name] = _object({key: _function(expr) for key, expr in found.items()})
    per_recipe = {
        name: _object(
            {key: _function(expr) for key, expr in state(recipe, symbols["N"], symbols["n"], symbols["G"]).items()}
        )
        for name, recipe in recipes.items()
    }
    rules = {
        name: _function(expression(getattr(training_compute, name)))
        for name in ("rule_flops", "exact_flops", "seconds")
    }
    return (
        HELPERS
        + "const FORMULAS = "
        + _object({"models": _object(per_model), "recipes": _object(per_recipe), "rules": _object(rules)})
    )


RUN_KEYS = {"D": "tokens", "G": "devices", "R": "flops_per_second_per_device"}


def starting_points(models: Mapping[str, Mapping[str, Any]], runs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What the calculator starts from: each model's label, sizes, context, constraints and first training run."""
    points = {}
    for name, model in models.items():
        spec = ModelSpec.from_json(model["spec"])
        own = sizes(spec)
        run: Mapping[str, Any] = next((run for run in runs.values() if run.get("model") == name), {})
        points[name] = {
            "label": model.get("label") or name,
            "sizes": own,
            "context": spec.context,
            "run": {symbol: str(int(run[key])) for symbol, key in RUN_KEYS.items() if run.get(key)},
            "follows": "d_h" in own and own["d_h"] * own["h"] == own["d"],
            "rotary": spec.positions == "rope",
            "others": sum(count for count, kind in spec.kinds() if kind != _main(spec)),
        }
    return points


def dtypes(cache_dtypes: list[str]) -> dict[str, list[int]]:
    """Numerator and denominator of the bytes of one number, by type name."""
    named: dict[str, Fraction] = {name: bytes_per_number(name) for name in (*BITS, *cache_dtypes)}
    return {name: [size.numerator, size.denominator] for name, size in named.items()}
