"""B4.5: rotary attention turns the queries and the keys and leaves the values as they are.

Our executed attention in fp32, with what its two products really multiply, against the NumPy reference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from transformer_ledger import bounds, routes
from transformer_ledger.evidence import Evidence, at_most, exactly, other_than
from transformer_ledger.model import from_architecture
from transformer_ledger.reference import decoder as reference
from transformer_ledger.reference import rope
from transformer_ledger.reference.arithmetic import Running

PAIRING = rope.PAIRINGS[1]  # the executed decoder's
U = bounds.UNIT_ROUNDOFF["fp32"]


class Attention:
    """One executed attention layer with drawn weights, on drawn inputs that may stand anywhere in a sequence."""

    def __init__(self, heads: int, head_dim: int, tokens: int, base: float, seed: int):
        import torch

        from transformer_ledger.executed.decoder import Decoder

        torch.manual_seed(seed)
        shape = {"layers": 1, "d_model": heads * head_dim, "heads": heads, "head_dim": head_dim, "d_ff": 1, "vocabulary": 2,
                 "context": tokens, "positions": "rope", "rope_base": base, "norm": "rmsnorm", "feedforward": "gelu"}  # fmt: skip
        self.spec = from_architecture("rotary", shape)
        self.layer = Decoder(self.spec).get_submodule("layers.0.attention").requires_grad_(False)
        self.x = torch.randn(1, tokens, heads * head_dim)
        self.tokens, self.head_dim, self.base = tokens, head_dim, base

    def run(self, start: int = 0, values: bool = False) -> tuple[Any, dict[str, Any]]:
        """Output (T, d) from position `start` on, and what went into projections and products; `values` turns those too."""
        import torch

        from transformer_ledger.executed import decoder

        turn = decoder._rotation(torch.arange(start, start + self.tokens), self.head_dim, self.base, torch.float32)
        seen: dict[str, Any] = {}
        hooks = [
            self.layer.get_submodule(name).register_forward_hook(lambda *call, name=name: seen.update({name: call[2]}))
            for name in ("query", "key", "value")
        ]

        def products(_: Any, inputs: Any) -> Any:
            seen["used_value"] = turn(inputs[1]) if values else inputs[1]
            return inputs[0], seen["used_value"]

        hooks += [
            self.layer.get_submodule("scores").register_forward_pre_hook(
                lambda _, inputs: seen.update(used_query=inputs[0] * math.sqrt(self.head_dim), used_key=inputs[1].mT)
            ),
            self.layer.get_submodule("values").register_forward_pre_hook(products),
        ]
        out = self.layer(self.x, turn, decoder._visibility(self.x.device), None, 0)[0].double().numpy()
        for hook in hooks:
            hook.remove()
        return out, seen

    def bounded(self, start: int) -> Any:
        """The reference's attention from position `start` on, with the running error bound in fp32."""
        run = Running(U)
        weights = {
            name.removesuffix(".weight"): run.array(w.double().numpy().T) for name, w in self.layer.named_parameters()
        }
        angles = bounds.rope_frequencies(self.head_dim, self.base, U) * np.arange(start, start + self.tokens)[
            :, None
        ].astype(float)
        cos, sin = bounds.cos(angles), bounds.sin(angles)
        visible = reference.visibility(self.tokens, True)
        own = self.spec.layers[0][1].attention
        joined, _ = reference.attention(run.array(self.x[0].double().numpy()), weights, own, visible,
                                        lambda y: rope.rotate(y, cos, sin, PAIRING, run.join), run)  # fmt: skip
        return reference.linear(joined, weights, "output", run)


def compute(
    settings: Mapping[str, Any], heads: int, head_dim: int, tokens: int, shift: int, base: float, seed: int
) -> list[dict[str, Any]]:
    """Rows of B4.5: attention of `heads` heads on `tokens` tokens, at positions from 0 on and moved by `shift`."""
    import torch

    torch.set_num_threads(1)
    executed = Attention(heads, head_dim, tokens, base, seed)
    here, there = executed.bounded(0), executed.bounded(shift)
    rows = Evidence("B4.5", settings, by=routes.MODULE, heads=heads, head_dim=head_dim, tokens=tokens)

    def changed(name: str = "value", values: bool = False) -> int:
        """Entries of a projection that the product sees changed; position 0 is turned by nothing."""
        _, seen = executed.run(values=values)
        before = seen[name].unflatten(-1, (heads, head_dim)).transpose(1, 2)
        change = (seen[f"used_{name}"].view_as(before) - before).abs()[:, :, 1:]
        # The scale is taken off the query, which leaves a rounding or two.
        allowed = 0 if name != "query" else 4 * U * before.abs()[:, :, 1:]
        return int((change > allowed).sum())

    touched, quantity = rows.of(against="its projection"), "entries that the rotation changes"
    touched.equal(quantity, changed(), 0, tried="value", headline=True, key="value")
    for name in ("query", "key"):
        touched.beyond(quantity, changed(name), 1, tried=name, leg="exact", key=name)
        touched.control(
            f"the {name} in place of the value", quantity, changed, {"name": name}, exactly(0), other_than(0)
        )
    touched.control("values rotated too", quantity, changed, {"values": True}, exactly(0))

    first, limit = executed.run()[0], here.error + there.error
    rows.agree("distance from the reference, at the output closest to its bound", first, here.value, here.error, against=routes.BLAS,
               source="running error bound, fp32")  # fmt: skip

    def off(values: bool = False) -> float:
        return float(np.abs(executed.run(values=values)[0] - here.value).max())

    def moved(values: bool = False) -> float:
        return float(np.abs(executed.run(shift, values)[0] - executed.run(0, values)[0]).max())

    rows.control("values rotated too", "largest distance from the reference", off, {"values": True}, at_most(here.error.max()),
                 against=routes.BLAS, key="turned")  # fmt: skip
    shifted = rows.of(source="running error bounds of both, fp32", shift=shift)
    shifted.within("change of the output closest to its bound", np.abs(executed.run(shift)[0] - first), limit)
    shifted.control(
        "values rotated too", "largest change of the output", moved, {"values": True}, at_most(limit.max()), key="moved"
    )
    return rows.rows
