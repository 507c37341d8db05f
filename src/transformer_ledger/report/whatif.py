"""The functions of the page's calculator: the ledgers' own, run once on symbols, as JavaScript that is exact in integers.

A model keeps its structure (which tensors and products exist); its sizes become symbols. `vary` makes the same model
with integers, so that a test can hold the browser's answers against the ledgers'.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import sympy

from transformer_ledger.formulas import architecture, training_compute, training_state
from transformer_ledger.formulas.shim import ceiling_quotient
from transformer_ledger.ledger import activations, kv_cache, matmul, parameters
from transformer_ledger.ledger.fit import FULLY_SHARDED
from transformer_ledger.ledger.storage import split
from transformer_ledger.ledger.training_state import SHARDED_FROM, items
from transformer_ledger.model import Attention, Layer, ModelSpec
from transformer_ledger.report import calculator, parts
from transformer_ledger.symbolic import arranged, expression, javascript, symbol

HELPERS = """const floorDiv = (a, b) => (b < 0n ? floorDiv(-a, -b) : a >= 0n ? a / b : -((b - 1n - a) / b));
const least = (...all) => all.reduce((a, b) => (b < a ? b : a));
const greatest = (...all) => all.reduce((a, b) => (b > a ? b : a));
"""
"""What `symbolic.javascript` needs in scope; BigInt division alone rounds towards zero."""


def _whole(size: Any) -> Any:
    return sympy.ceiling(sympy.sympify(size))


def vary(spec: ModelSpec, values: Mapping[str, Any]) -> ModelSpec:
    """The model with other sizes, integers or symbols.

    Layers of every kind change where they share the size of the most frequent kind; L counts that kind, the others'
    numbers stay.
    """
    main = calculator.main_layer(spec)

    def size(name: str, own: Any, reference: Any) -> Any:
        return values[name] if name in values and own == reference else own

    def layer(kind: Layer) -> Layer:
        a, ff, base, wide = kind.attention, kind.feedforward, main.attention, main.feedforward
        return dataclasses.replace(
            kind,
            mixer=dataclasses.replace(
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


def _row(cache: calculator.Stored, width: Any) -> Any:
    """Bytes of `width` numbers: whole groups with their constants, and whole bytes, as `storage.row_bytes`."""
    groups = ceiling_quotient(width, cache.group)
    return _whole(groups * cache.group * cache.size) + cache.constants * groups


def _layer_cache(a: Attention, B: Any, T: Any, cache: calculator.Stored) -> Any:
    formula, arguments = kv_cache.layer(a, "needed")
    # A position keeps its keys and its values (or latent and rotated key) in a row each.
    widths = (a.latent.kv_rank, a.latent.rope_dim) if a.latent else (a.kv_heads * a.head_dim,) * 2
    return formula(B=B, T=T, b=sympy.sympify(sum(_row(cache, width) for width in widths)) / sum(widths), **arguments)


def quantities(spec: ModelSpec, B: Any, T: Any, cache: calculator.Stored) -> dict[str, Any]:
    """What the ledgers say about a model: integers for integers, expressions for symbols.

    B sequences of T tokens; the cache is stored as `cache`.
    """
    every, active = parameters.totals(spec)
    return {
        "parameters": every,
        "active": active,
        "tensors": parameters.tensor_count(spec),
        "rule": training_compute.rule_parameters(spec.depth, spec.d_model, spec.vocabulary),
        **parameter_parts(spec),
        **work_parts(spec, B, T),
        **activation_bytes(spec, B, T),
        "cache": sum(count * _layer_cache(kind.attention, B, T, cache) for count, kind in spec.kinds()),
        "prefill": matmul.total(spec, B, T, "prefill"),
        "decode": matmul.total(spec, B, T, "decode"),
        # One sequence: what a training token costs does not depend on the batch.
        "train": matmul.total(spec, 1, T, "train"),
    }


def parameter_parts(spec: ModelSpec) -> dict[str, Any]:
    """Parameters of each part, and what the rule 12Ld² + Vd misses of it: together the whole model, and all it misses."""
    held: dict[str, Any] = dict.fromkeys(parts.PARTS, 0)
    for tensor in parameters.tensors(spec):
        held[parts.group(tensor.component)] += tensor.parameters
    L, d, V = spec.depth, spec.d_model, spec.vocabulary
    supposed = {
        "attention": L * architecture.attention_parameters(d),
        "feed-forward": L * architecture.plain_feedforward_parameters(d, 4 * d),
        "embeddings": V * d,
    }
    return {f"part {part}": count for part, count in held.items()} | {
        f"gap {part}": count - supposed.get(part, 0) for part, count in held.items()
    }


def work_parts(spec: ModelSpec, B: Any, T: Any) -> dict[str, Any]:
    """FLOPs of the parts of a forward pass, which add up to it."""
    done: dict[str, Any] = dict.fromkeys(parts.WORK, 0)
    for product in matmul.products(spec, B, T, T, "prefill"):
        done[parts.work(product.component)] += product.flops
    return {f"work {part}": flops for part, flops in done.items()}


METHODS = {"eager": (False, False), "fused": (True, False), "checkpointed": (True, True)}
"""Fused, and checkpointed, of the ways to save activations; a checkpointed layer saves the same either way."""
ACTIVATION_BYTES = 2  # of a number: bf16 or fp16, which the ledger holds against real tensors


def activation_bytes(spec: ModelSpec, B: Any, T: Any) -> dict[str, Any]:
    """Bytes that one forward pass of our own decoder saves in bf16, by method, and those of the logits among them."""
    found: dict[str, Any] = {}
    for name, (fused, checkpointed) in METHODS.items():
        run = activations.Run(B, T, ACTIVATION_BYTES, fused, checkpointed)
        saved = {scope: sum(part.bytes for part in held) for scope, _, _, held in activations.scopes(spec, run)}
        found[f"activations {name}"], found["activations logits"] = saved["total"], saved["logits"]
    return found


def _counted(recipe: Mapping[str, Any]) -> Iterator[tuple[str, str, str, int]]:
    """(item, dtype, what counts its numbers, size of its groups) of a recipe."""
    for item, dtype in items(recipe).items():
        factored = recipe["optimizer"] == "adafactor" and item == "second_moment"
        yield item, dtype, "tensors" if item == "step" else "factored" if factored else "parameters", split(dtype)[1]


def _groups(name: str, group: int) -> str:
    return f"{name}_groups_{group}"


def counts(spec: ModelSpec, recipes: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers that items of the recipes hold for a model, and their groups, which end with each tensor.

    Keys: `parameters`, `tensors`, `factored` (Adafactor's second moments), and such as `parameters_groups_256`.
    """
    every = [(t.copies, t.shape) for t in parameters.tensors(spec)]
    numbers = {
        "parameters": [(copies, math.prod(shape)) for copies, shape in every],
        "tensors": [(copies, 1) for copies, _ in every],
        "factored": [
            (
                copies,
                training_state.factored(math.prod(shape[:-2]), *shape[-2:]) if len(shape) > 1 else math.prod(shape),
            )
            for copies, shape in every
        ],
    }
    found = {name: sum(copies * count for copies, count in kept) for name, kept in numbers.items()}
    for recipe in recipes.values():
        for _, _, name, group in _counted(recipe):
            if group:
                groups = (copies * ceiling_quotient(count, group) for copies, count in numbers[name])
                found[_groups(name, group)] = sum(groups)
    return found


def state(recipe: Mapping[str, Any], counted: Mapping[str, Any], G: Any) -> dict[str, Any]:
    """Bytes of a training recipe for a model with these `counts`: in all, and the largest share of G devices.

    The share by item, too (`share weights`), and as the recipe's ZeRO stage, or the last where it names none, divides
    it (`divided`).
    """
    stage = recipe.get("zero_stage", 0)
    shares: dict[str, Any] = {}
    total: Any = 0
    divided: Any = 0
    for item, dtype, name, group in _counted(recipe):
        N, b = counted[name], split(dtype)[0]
        if group:
            size = training_state.quantised(N, b, counted[_groups(name, group)])
        else:
            size = training_state.per_tensor(N, b) if item == "step" else training_state.per_parameter(N, b)
        total += _whole(size)
        whole, part = _whole(size), _whole(training_state.sharded(N, G, sympy.sympify(size) / N))
        first = SHARDED_FROM.get(item, 1)
        shares[f"share {item}"] = part if stage >= first else whole
        divided += part if (stage or FULLY_SHARDED) >= first else whole
    return {"total": total, "share": sum(shares.values()), **shares, "divided": divided}


def _count(name: str) -> sympy.Symbol:
    return sympy.Symbol(name, integer=True, positive=True)


@functools.cache
def _function(expr: Any) -> str:
    expr = sympy.sympify(expr)
    names = sorted(s.name for s in expr.free_symbols)
    return f"({{{', '.join(names)}}}) => {javascript(expr)}"


def _object(members: Mapping[str, str]) -> str:
    return "{" + ",\n".join(f"{calculator.quoted(name)}: {text}" for name, text in members.items()) + "}"


def _structure(spec: ModelSpec) -> ModelSpec:
    """The model with symbols for its sizes, and without what no quantity depends on."""
    varied = vary(spec, {size: symbol(size) for size in calculator.sizes(spec)})
    return dataclasses.replace(varied, name="", context=0, rope_base=0.0, norm_epsilon=0.0)


def written(expr: Any) -> str:
    """An expression in one line, for reading: 12·L·d² + V·d."""
    text = sympy.sstr(sympy.sympify(expr), order="none")
    text = re.sub(r"\*\*(\d+)", lambda power: power[1].translate(_RAISED), text)
    return re.sub(r"\b(Min|Max)\b", lambda name: name[1].lower(), text).replace("*", "·")


_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def texts(spec: ModelSpec) -> dict[str, str]:
    """Formulas of a model's quantities to read, with symbols that the page replaces by numbers."""
    B, T, b = symbol("B"), symbol("T"), symbol("b")
    every, active = parameters.totals(spec)
    found = {"parameters": every, "active": active, "prefill": matmul.total(spec, B, T, "prefill")}
    cache = 0
    for count, kind in spec.kinds():
        formula, arguments = kv_cache.layer(kind.attention, "needed")
        cache += count * formula(B=B, T=T, b=b, **arguments)
    return {name: written(arranged(expr, "L")) for name, expr in found.items()} | {"cache": written(cache)}


@functools.cache
def _symbolic(structure: ModelSpec) -> tuple[dict[str, Any], dict[str, str]]:
    """Quantities and texts of a model whose sizes are symbols; of the cache's type, too."""
    above, below, group = (_count(name) for name in ("b_above", "b_below", "b_group"))
    stored = calculator.Stored(above / below, group, sympy.Symbol("b_constants", integer=True, nonnegative=True))
    return quantities(structure, symbol("B"), symbol("T"), stored), texts(structure)


class _Functions:
    """JavaScript functions, each once, whatever number of models shares it."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}

    def __call__(self, expr: Any) -> str:
        return f"F[{self.texts.setdefault(_function(expr), len(self.texts))}]"


def script(models: Mapping[str, Mapping[str, Any]], recipes: Mapping[str, Any]) -> str:
    """JavaScript defining FORMULAS: the functions and texts of each model, of each recipe, and the rules.

    Every function takes one object of BigInts and returns [numerator, denominator]. A number of the cache has
    b_above / b_below bytes, b_group of them b_constants more; a recipe takes the model's counts and G.
    """
    functions = _Functions()
    structures: dict[ModelSpec, str] = {}
    places = {}
    for name, model in models.items():
        structure = _structure(ModelSpec.from_json(model["spec"]))
        if structure not in structures:
            found, read = _symbolic(structure)
            named = {key: functions(expr) for key, expr in (found | counts(structure, recipes)).items()}
            structures[structure] = _object({"functions": _object(named), "texts": calculator.quoted(read)})
        places[name] = list(structures).index(structure)
    grouped = {_groups(name, group) for recipe in recipes.values() for *_, name, group in _counted(recipe) if group}
    counted = {name: _count(name) for name in ("parameters", "tensors", "factored", *sorted(grouped))}
    per_recipe = {
        name: _object({key: functions(expr) for key, expr in state(recipe, counted, symbol("G")).items()})
        for name, recipe in recipes.items()
    }
    rules = {
        name: functions(expression(getattr(training_compute, name)))
        for name in ("rule_flops", "exact_flops", "seconds")
    }
    whole = {
        "structures": f"[{', '.join(structures.values())}]",
        "models": calculator.quoted(places),
        "recipes": _object(per_recipe),
        "rules": _object(rules),
    }
    made = ",\n".join(functions.texts)
    return f"{HELPERS}const F = [{made}];\nconst FORMULAS = {_object(whole)};\n"
