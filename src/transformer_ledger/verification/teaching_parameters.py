"""B1: the teaching decoder's parameters are 2Vd + Cd + N(4d² + 2df + f + 5d) + 2d, whatever the input's length.

Symbolic: the ledger's own rows, added up on a description whose sizes are symbols. Executed: our torch decoder over a
grid of shapes, tensor kind by tensor kind, and the probabilities that its attention really makes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from transformer_ledger.cases import case
from transformer_ledger.formulas import architecture as formulas
from transformer_ledger.ledger.parameters import tensors
from transformer_ledger.model import Attention, Feedforward, Layer, ModelSpec, from_architecture

TEACHING = {
    "positions": "learned",
    "norm": "layernorm",
    "feedforward": "gelu",
    "biases": {"feedforward": True, "norm": True},
}
Shape = Mapping[str, int]


def teaching(shape: Shape) -> ModelSpec:
    """The teaching decoder of a shape (layers, d_model, heads, d_ff, vocabulary, context)."""
    return from_architecture("teaching", {**shape, **TEACHING})


def said(shape: Shape) -> str:
    """A shape in words."""
    return ", ".join(f"{name} {size}" for name, size in shape.items())


def symbolic_teaching() -> tuple[ModelSpec, dict[str, Any]]:
    """The teaching decoder with symbols for sizes, and the symbols by name."""
    import sympy

    s = {name: sympy.Symbol(name, positive=True, integer=True) for name in ("V", "d", "C", "L", "f", "h", "B", "T")}
    layer = Layer(Attention(s["h"], s["h"], s["d"] / s["h"]), Feedforward("gelu", s["f"], bias=True))
    spec = ModelSpec(
        name="teaching",
        d_model=s["d"],
        vocabulary=s["V"],
        context=s["C"],
        layers=((s["L"], layer),),
        positions="learned",
        position_rows=s["C"],
        norm="layernorm",
        norm_bias=True,
    )
    return spec, s


def terms(expression: Any) -> int:
    """Number of terms of an expanded difference; 0 where both sides are the same."""
    import sympy

    expanded = sympy.expand(expression)
    return 0 if expanded == 0 else len(sympy.Add.make_args(expanded))


def printed_formula(shape: Shape) -> int:
    """The text's formula for a shape."""
    return int(
        formulas.teaching_parameters(
            V=shape["vocabulary"], d=shape["d_model"], C=shape["context"], L=shape["layers"], f=shape["d_ff"]
        )
    )


def with_attention_biases(spec: ModelSpec) -> ModelSpec:
    """The same decoder with a bias on every attention projection."""
    layers = tuple(
        (
            count,
            dataclasses.replace(
                layer,
                attention=dataclasses.replace(
                    layer.attention, query_bias=True, key_bias=True, value_bias=True, output_bias=True
                ),
            ),
        )
        for count, layer in spec.layers
    )
    return dataclasses.replace(spec, layers=layers)


def _symbolic_rows() -> list[dict[str, Any]]:
    import sympy

    spec, s = symbolic_teaching()
    printed = formulas.teaching_parameters(V=s["V"], d=s["d"], C=s["C"], L=s["L"], f=s["f"])
    ledger = sum(tensor.parameters for tensor in tensors(spec))

    def row(claim: str, where: str, quantity: str, measured: Any, expected: Any, leg: str = "exact") -> dict[str, Any]:
        return case(claim, where, leg, quantity, measured, "==", expected, backend="symbolic")

    return [
        row(
            "B1.1",
            "sum of the ledger's rows, in symbols",
            "terms that differ from the formula",
            terms(ledger - printed),
            0,
        ),
        row("B1.2", "symbols of the formula", "occurrences of T", int(s["T"] in printed.free_symbols), 0),
        row(
            "B1.2",
            "derivative of the formula by C",
            "terms that differ from d",
            terms(sympy.diff(printed, s["C"]) - s["d"]),
            0,
        ),
    ]


def _executed_parameters(shape: Shape) -> list[dict[str, Any]]:
    from transformer_ledger.executed import count

    spec, printed = teaching(shape), printed_formula(shape)
    where = said(shape)

    def executed(own: ModelSpec) -> int:
        return count.parameters(count.full_depth(own))[0].total()

    by_kind = count.parameters(count.full_depth(spec))[0]
    ledger: dict[tuple[str, str], int] = {}
    for tensor in tensors(spec):
        key = (tensor.component, "bias" if tensor.bias else "weight")
        ledger[key] = ledger.get(key, 0) + tensor.parameters
    apart = sum(by_kind.get(key, 0) != ledger.get(key, 0) for key in by_kind.keys() | ledger.keys())

    def row(claim: str, what: str, leg: str, quantity: str, measured: int, expected: int) -> dict[str, Any]:
        relation = ">=" if leg == "control" else "=="
        return case(
            claim, f"{what}, {where}", leg, quantity, measured, relation, expected, backend="torch", unit="parameter"
        )

    return [
        row("B1.1", "executed decoder", "exact", "parameters", executed(spec), printed),
        row("B1.1", "tensor kind by tensor kind", "exact", "kinds that differ from the ledger", apart, 0)
        | {"unit": ""},
        row(
            "B1.1",
            "biases in attention",
            "control",
            "parameters apart from the formula",
            abs(executed(with_attention_biases(spec)) - printed),
            1,
        ),
        row(
            "B1.1",
            "tied head",
            "control",
            "parameters apart from the formula",
            abs(executed(dataclasses.replace(spec, tied_head=True)) - printed),
            1,
        ),
        row(
            "B1.2",
            "position table with twice the rows",
            "control",
            "parameters more",
            executed(teaching({**shape, "context": 2 * shape["context"]})) - executed(spec),
            1,
        ),
    ]


def _executed_lengths(shape: Shape, batch: int, lengths: Sequence[int], seed: int) -> list[dict[str, Any]]:
    """B1.2 and B1.3 on a decoder that runs for real, at every length."""
    import torch

    from transformer_ledger.executed.decoder import Decoder

    torch.manual_seed(seed)
    model = Decoder(teaching(shape))
    probabilities: list[Any] = []
    model.get_submodule("layers.0.attention.values").register_forward_pre_hook(
        lambda _, inputs: probabilities.append(inputs[0])
    )
    counts = set()
    rows = []
    h, where = shape["heads"], said(shape)
    for T in lengths:
        with torch.no_grad():
            model(torch.randint(shape["vocabulary"], (batch, T)))
        counts.add(sum(parameter.numel() for parameter in model.parameters()))
        made = probabilities[-1]
        rows += [
            case(
                "B1.3",
                f"executed attention, T {T}, {where}",
                "exact",
                "sizes other than [B, h, T, T]",
                sum(a != b for a, b in zip(made.shape, (batch, h, T, T), strict=True)),
                "==",
                0,
                backend="torch",
            ),
            case(
                "B1.3",
                f"executed attention, T {T}, {where}",
                "exact",
                "bytes of the probabilities",
                made.untyped_storage().nbytes(),
                "==",
                formulas.attention_probabilities(B=batch, h=h, T=T, b=4),
                backend="torch",
                unit="byte",
            ),
        ]
    sizes = [made.untyped_storage().nbytes() for made in probabilities]
    for (T, size), (twice, larger) in zip(
        zip(lengths, sizes, strict=True), zip(lengths[1:], sizes[1:], strict=True), strict=False
    ):
        rows.append(
            case(
                "B1.3",
                f"T from {T} to {twice}, {where}",
                "exact",
                "growth of the probabilities",
                Fraction(larger, size),
                "==",
                Fraction(twice, T) ** 2,
                backend="torch",
            )
        )
    rows.append(
        case(
            "B1.2",
            f"after forwards of T = {', '.join(map(str, lengths))}, {where}",
            "exact",
            "different counts",
            len(counts),
            "==",
            1,
            backend="torch",
        )
    )
    return rows


def _largest_tensor(batch: int, heads: int, tokens: int, width: int) -> int:
    """Entries of the largest tensor that torch's fused attention makes where it can be seen."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        entries = 0

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = function(*args, **(kwargs or {}))
            for part in out if isinstance(out, tuple) else (out,):
                if isinstance(part, torch.Tensor):
                    self.entries = max(self.entries, part.numel())
            return out

    x = torch.ones(batch, heads, tokens, width)
    with Largest() as seen:
        torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
    return seen.entries


def compute(shapes: Sequence[Shape], batch: int, lengths: Sequence[int], seed: int) -> list[dict[str, Any]]:
    """Rows of B1.1 to B1.3 over a grid of shapes; `lengths` are run for real on each, none above its context."""
    import torch

    torch.set_num_threads(1)
    rows = _symbolic_rows()
    for shape in shapes:
        rows += _executed_parameters(shape) + _executed_lengths(shape, batch, lengths, seed)
    one = shapes[0]
    d_h = one["d_model"] // one["heads"]
    small, large = (_largest_tensor(batch, one["heads"], T, d_h) for T in (lengths[0], 2 * lengths[0]))
    rows.append(
        case(
            "B1.3",
            f"a fused kernel, T from {lengths[0]} to {2 * lengths[0]}",
            "control",
            "growth of the largest tensor",
            Fraction(large, small),
            "==",
            2,
            backend="torch",
        )
    )
    for quantity in ("parameters", "occurrences of T", "growth of the probabilities"):
        # The last shape's row is the one to show.
        [row for row in rows if row["quantity"] == quantity][-1]["headline"] = True
    return rows
