"""The teaching decoder's parameters are 2Vd + Cd + N(4d² + 2df + f + 5d) + 2d, whatever the input's length.

Claims B1.1 to B1.3. Symbolic: the ledger's own rows, added up on a description whose sizes are symbols. Executed: our
torch decoder over a grid of shapes, and the probabilities that its attention really makes.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from transformer_ledger import routes
from transformer_ledger.evidence import Evidence, exactly
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


def teaching(shape: Shape, **changed: Any) -> ModelSpec:
    """The teaching decoder of a shape (layers, d_model, heads, d_ff, vocabulary, context), other keys `changed`."""
    return from_architecture("teaching", {**shape, **TEACHING, **changed})


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


def _symbolic(proof: Evidence) -> None:
    import sympy

    spec, s = symbolic_teaching()
    printed = formulas.teaching_parameters(V=s["V"], d=s["d"], C=s["C"], L=s["L"], f=s["f"])

    def ledger(**changed: Any) -> Any:
        return sum(tensor.parameters for tensor in tensors(dataclasses.replace(spec, **changed)))

    here = proof.of(by=routes.SYMBOLS, tried="the ledger's rows added up")
    quantity = "terms that differ from the formula"
    here.of("B1.1").equal(quantity, terms(ledger() - printed), 0, key="symbols")
    here.of("B1.1").control("a tied head", quantity, lambda **changed: terms(ledger(**changed) - printed),
                            {"tied_head": True}, exactly(0))  # fmt: skip
    here.of("B1.2").equal("occurrences of T", int(s["T"] in ledger().free_symbols), 0, headline=True)
    slope = terms(sympy.diff(ledger(), s["C"]) - s["d"])
    here.of("B1.2").equal("terms that differ from d in the derivative by C", slope, 0)


def _parameters(proof: Evidence, shape: Shape, headline: bool) -> None:
    """B1.1 on an executed decoder of one shape."""
    from transformer_ledger.executed import count

    printed = int(formulas.teaching_parameters(
        V=shape["vocabulary"], d=shape["d_model"], C=shape["context"], L=shape["layers"], f=shape["d_ff"]
    ))  # fmt: skip

    def executed(**changed: Any) -> Counter[tuple[str, str]]:
        return count.parameters(count.full_depth(teaching(shape, **changed)))[0]

    ledger: Counter[tuple[str, str]] = Counter()
    for tensor in tensors(teaching(shape)):
        ledger[tensor.component, "bias" if tensor.bias else "weight"] += tensor.parameters
    here = proof.of("B1.1", unit="parameter", by=routes.MODULE, **shape)
    here.equal("parameters", executed().total(), printed, headline=headline, key="parameters" if headline else None)
    here.equal("tensor kinds that differ", len(executed().items() ^ ledger.items()), 0, unit="", against=routes.LEDGER)
    biases = dict.fromkeys(("query", "key", "value", "output"), True) | TEACHING["biases"]  # type: ignore[operator]
    for change, changed in (("biases in attention", {"biases": biases}), ("a tied head", {"tied_head": True})):
        here.control(change, "parameters", lambda **changed: executed(**changed).total(), changed, exactly(printed))


def _lengths(proof: Evidence, shape: Shape, batch: int, lengths: Sequence[int], seed: int, headline: bool) -> None:
    """B1.2 and B1.3 on a decoder that runs for real, at every length."""
    import torch

    from transformer_ledger.executed.decoder import Decoder

    made: list[Any] = []

    def ran(T: int, positions: str = "context") -> int:
        """Parameters after a forward pass over T tokens; with `positions` "T" the table has a row for each of them."""
        torch.manual_seed(seed)
        model = Decoder(teaching({**shape, "context": shape["context"] if positions == "context" else T}))
        attention = model.get_submodule("layers.0.attention.values")
        attention.register_forward_pre_hook(lambda _, inputs: made.append(inputs[0]))
        with torch.no_grad():
            model(torch.randint(shape["vocabulary"], (batch, T)))
        return sum(parameter.numel() for parameter in model.parameters())

    def different(positions: str = "context") -> int:
        return len({ran(T, positions) for T in lengths})

    fixed = proof.of("B1.2", by=routes.TORCH, lengths=list(lengths), **shape)
    fixed.equal("different counts of parameters", different(), 1)
    fixed.control("a position table with one row for each token of the input", "different counts of parameters",
                  different, {"positions": "T"}, exactly(1), key="sized_by_T" if headline else None)  # fmt: skip
    h, tensors_made = shape["heads"], made[: len(lengths)]
    grown = proof.of("B1.3", by=routes.TENSORS, **shape)
    for T, tensor in zip(lengths, tensors_made, strict=True):
        here = grown.of(batch=batch, length=T)
        here.same("sizes other than [B, h, T, T]", tensor.shape, (batch, h, T, T))
        bytes_ = formulas.attention_probabilities(B=batch, h=h, T=T, b=4)
        here.equal("bytes of the probabilities", tensor.untyped_storage().nbytes(), bytes_, unit="byte")


def _growth(proof: Evidence, shape: Shape, batch: int, T: int) -> None:
    """B1.3: the largest tensor of an attention over 2T tokens against T, with and without its probabilities."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    from transformer_ledger.executed.decoder import Attention as Module

    spec = teaching(shape)
    h, d_h = shape["heads"], shape["d_model"] // shape["heads"]
    dense = Module(spec, spec.layers[0][1].attention)

    class Largest(TorchDispatchMode):
        entries = 0

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = function(*args, **(kwargs or {}))
            for part in out if isinstance(out, tuple) else (out,):
                if isinstance(part, torch.Tensor):
                    self.entries = max(self.entries, part.numel())
            return out

    def largest(tokens: int, fused: bool) -> int:
        x = torch.ones(batch, h, tokens, d_h)
        with torch.no_grad(), Largest() as seen:
            if fused:
                torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
            else:
                dense.attend(x, x, x, 1.0, lambda T, S, window: None)
        return seen.entries

    def growth(fused: bool = False) -> Fraction:
        return Fraction(largest(2 * T, fused), largest(T, fused))

    here = proof.of("B1.3", by=routes.TENSORS, length=T, **shape)
    here.equal("growth of the largest tensor when T doubles", growth(), 4, headline=True, key="growth")
    here.control("a fused kernel, which keeps no probabilities", "growth of the largest tensor when T doubles", growth,
                 {"fused": True}, exactly(4), exactly(2), key="fused")  # fmt: skip


def compute(shapes: Sequence[Shape], batch: int, lengths: Sequence[int], seed: int) -> list[dict[str, Any]]:
    """Rows of B1.1 to B1.3 over a grid of shapes; `lengths` are run for real on each, none above its context."""
    import torch

    torch.set_num_threads(1)
    proof = Evidence("B1.1", against=routes.FORMULA)
    _symbolic(proof)
    for shape in shapes:
        _parameters(proof, shape, shape is shapes[-1])
        _lengths(proof, shape, batch, lengths, seed, shape is shapes[-1])
    # Long enough that the probabilities outgrow the queries.
    _growth(proof, shapes[0], batch, 2 * max(*lengths, shapes[0]["d_model"]))
    return proof.rows
