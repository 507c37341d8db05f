"""Time of LayerNorm and RMSNorm over rows of growing width: fewer operations, and what the clock says.

Each norm runs twice: as torch ships it, and written out in tensor operations that each read and write memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from transformer_ledger.formulas import norms as formulas
from transformer_ledger.timing.machine import Work, measure

BYTES = 4  # fp32
EPSILON = 1e-5
SHIPPED, WRITTEN_OUT = "as shipped", "written out"


def _written_out(x: Any, centre: bool) -> Any:
    x = x - x.mean(-1, keepdim=True) if centre else x
    return x * (x * x).mean(-1, keepdim=True).add(EPSILON).rsqrt()


def works(rows: int, width: int, seed: int) -> list[Work]:
    """Both norms of `rows` vectors of a width in fp32, each in both ways; RMSNorm is compared with LayerNorm."""
    import torch
    from torch.nn import functional

    torch.manual_seed(seed)
    x = torch.randn(rows, width)
    ways: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        SHIPPED: (
            lambda: functional.layer_norm(x, (width,), eps=EPSILON),
            lambda: functional.rms_norm(x, (width,), eps=EPSILON),
        ),
        WRITTEN_OUT: (lambda: _written_out(x, True), lambda: _written_out(x, False)),
    }
    sizes = {"rows": rows, "width": width}
    moved = rows * formulas.norm_bytes(d=width, b=BYTES)
    out = []
    for way, (layer, rms) in ways.items():
        base = f"LayerNorm, {rows} × {width}"
        operations = (formulas.layer_norm_operations(d=width), formulas.rms_norm_operations(d=width))
        out += [
            Work(base, way, {"norm": "LayerNorm", **sizes}, layer, rows * operations[0], moved),
            Work(
                f"RMSNorm, {rows} × {width}", way, {"norm": "RMSNorm", **sizes}, rms, rows * operations[1], moved, base
            ),
        ]
    return out


def compute(widths: Sequence[int], rows: int, repeats: Mapping[str, Any], seed: int) -> list[dict[str, Any]]:
    """Rows of timing/norms: `rows` vectors of each of `widths`; `repeats` as machine.Repeats."""
    return measure([work for width in widths for work in works(rows, width, seed)], repeats)
