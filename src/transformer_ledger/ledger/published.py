"""Figures that papers and model cards publish, and ours for the same model: a route that nobody here has written.

Each entry has the figure as published; ours must round to its digits, or be equal where it is an integer in full.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from transformer_ledger import huggingface
from transformer_ledger.evidence import Printed
from transformer_ledger.ledger import conventions, training_compute, training_state
from transformer_ledger.ledger.counted import PUBLISHED
from transformer_ledger.ledger.parameters import tensors
from transformer_ledger.ledger.storage import split
from transformer_ledger.model import ModelSpec

PYTHIA = "Pythia, arXiv:2304.01373, table 1, and its model cards"
GPT_3 = "Brown et al. 2020 (GPT-3), arXiv:2005.14165, table D.1"
ZERO = "Rajbhandari et al. 2020 (ZeRO), arXiv:1910.02054, figure 1"
MIXTRAL = "Jiang et al. 2024 (Mixtral), arXiv:2401.04088, abstract"
GPT_OSS = "gpt-oss model card, arXiv:2508.10925, table 1"
LORA = "Hu et al. 2021 (LoRA), arXiv:2106.09685, table 4: adapters of query and value"
NANO = "nanoGPT, transformer_sizing.ipynb"


def _neox(layers: int, d: int, heads: int, vocabulary: int) -> ModelSpec:
    sizes = {"num_hidden_layers": layers, "hidden_size": d, "num_attention_heads": heads, "vocab_size": vocabulary}
    return huggingface.read("pythia", {"model_type": "gpt_neox", "intermediate_size": 4 * d, **sizes})[0]


def _read(**config: Any) -> ModelSpec:
    return huggingface.read("published", config)[0]


MODELS: dict[str, ModelSpec] = {
    "GPT-2": _read(model_type="gpt2"),
    "Mixtral 8x7B": _read(model_type="mixtral", num_key_value_heads=8, num_local_experts=8, num_experts_per_tok=2),
    "gpt-oss-20b": _read(model_type="gpt_oss", num_hidden_layers=24, num_local_experts=32, num_experts_per_tok=4),
    "gpt-oss-120b": _read(model_type="gpt_oss", num_hidden_layers=36, num_local_experts=128, num_experts_per_tok=4),
    "DeepSeek-V3": _read(model_type="deepseek_v3", num_hidden_layers=61, vocab_size=129280),
    "Pythia 160M": _neox(12, 768, 12, 50304),
    "Pythia 1B": _neox(16, 2048, 8, 50304),
    "Pythia 12B": _neox(36, 5120, 40, 50688),
}


def _convention(model: str, quantity: str, name: str, B: int = 1, T: int = 1) -> Any:
    found = [c for c in conventions.CONVENTIONS if (c.quantity, c.name) == (quantity, name)]
    (convention,) = found
    return convention.value(MODELS[model], B, T)


def _zero(stage: int) -> Any:
    """Bytes on each of 64 devices that train 7.5 billion parameters with mixed-precision Adam, 16 bytes each."""
    recipe = {"weights": "fp16", "gradients": "fp16", "master_weights": "fp32", "optimizer": "adamw", "moments": "fp32"}
    held = {**recipe, "devices": 64, "zero_stage": stage}
    N = 7_500_000_000
    kept = {item: split(dtype)[0] for item, dtype in training_state.items(held).items() if item != "step"}
    return sum(training_state.share(N, b, item, held) for item, b in kept.items())


def _adapters(rank: int) -> int:
    """Numbers in the adapters of GPT-3's query and value maps."""
    spec = _read(model_type="gpt2", n_embd=12288, n_head=96, n_layer=96)
    lora = {"rank": rank, "targets": ["attention.query", "attention.value"]}
    return sum(t.copies * math.prod(t.shape) for t in training_state.adapters(tensors(spec), lora))


def _gpt_3(parameters: int, tokens: int, key: str) -> Any:
    """FLOPs of one of its trainings, and the days of one device that does 10¹⁵ in a second: PF-days."""
    return training_compute.times(parameters, tokens, 1, 1e15, None)[key]


Entry = tuple[str, str, str, str, str, str, Callable[[], Any]]
FIGURES: tuple[Entry, ...] = (
    ("GPT-2", "parameters", "every tensor", "124439808", "parameter", "transformers’ GPT-2 checkpoint",
     lambda: _convention("GPT-2", "parameters", "every tensor")),
    ("GPT-2", "parameters", "without position table", "123.65e6", "parameter", NANO,
     lambda: _convention("GPT-2", "parameters", "without position table")),
    ("GPT-2", "parameters", "tied head twice", "163037184", "parameter", "torch: the checkpoint’s state_dict()",
     lambda: _convention("GPT-2", "parameters", "tied head twice")),
    ("Mixtral 8x7B", "parameters", "every tensor", "47e9", "parameter", MIXTRAL,
     lambda: _convention("Mixtral 8x7B", "parameters", "every tensor")),
    ("Mixtral 8x7B", "active parameters", "every tensor in use", "13e9", "parameter", MIXTRAL,
     lambda: _convention("Mixtral 8x7B", "active parameters", "every tensor in use")),
    ("gpt-oss-20b", "parameters", "every tensor", "20.91e9", "parameter", GPT_OSS,
     lambda: _convention("gpt-oss-20b", "parameters", "every tensor")),
    ("gpt-oss-20b", "active parameters", "without input tables", "3.61e9", "parameter", GPT_OSS,
     lambda: _convention("gpt-oss-20b", "active parameters", "without input tables")),
    ("gpt-oss-120b", "parameters", "every tensor", "116.83e9", "parameter", GPT_OSS,
     lambda: _convention("gpt-oss-120b", "parameters", "every tensor")),
    ("gpt-oss-120b", "active parameters", "without input tables", "5.13e9", "parameter", GPT_OSS,
     lambda: _convention("gpt-oss-120b", "active parameters", "without input tables")),
    ("DeepSeek-V3", "parameters", "every tensor", "671e9", "parameter", "DeepSeek-V3, arXiv:2412.19437, abstract",
     lambda: _convention("DeepSeek-V3", "parameters", "every tensor")),
    ("Llama 3.1 405B", "training FLOPs", "6ND", "3.8e25", "FLOP", "Llama 3, arXiv:2407.21783, section 3.2.1: 15.6T tokens",
     lambda: training_compute.times(405_000_000_000, 15_600_000_000_000, None, None, None)["flops_6nd"]),
    *((name, "parameters", convention, figure, "parameter", PYTHIA,
       lambda name=name, convention=convention: _convention(name, "parameters", convention))
      for name, convention, figure in (
          ("Pythia 160M", "non-embedding", "85056000"), ("Pythia 160M", "every tensor", "162322944"),
          ("Pythia 1B", "non-embedding", "805736448"), ("Pythia 1B", "every tensor", "1011781632"),
          ("Pythia 12B", "non-embedding", "11327027200"), ("Pythia 12B", "every tensor", "11846072320"))),
    *((name, "training FLOPs", "6ND", figure, "FLOP", GPT_3,
       lambda N=N: _gpt_3(N, 300_000_000_000, "flops_6nd"))
      for name, N, figure in (("GPT-3 Small", 125_000_000, "2.25e20"), ("GPT-3 XL", 1_320_000_000, "2.38e21"),
                              ("GPT-3 13B", 12_850_000_000, "2.31e22"), ("GPT-3 175B", 174_600_000_000, "3.14e23"))),
    *((name, "training compute", "6ND", figure, "petaFLOP/s-day", GPT_3, lambda N=N: _gpt_3(N, 300_000_000_000, "days"))
      for name, N, figure in (("GPT-3 Small", 125_000_000, "2.60e0"), ("GPT-3 XL", 1_320_000_000, "2.75e1"),
                              ("GPT-3 13B", 12_850_000_000, "2.68e2"), ("GPT-3 175B", 174_600_000_000, "3.64e3"))),
    *(("7.5 billion parameters, 64 devices", "training state", f"ZeRO stage {stage}", figure, "byte", ZERO,
       lambda stage=stage: _zero(stage))
      for stage, figure in ((1, "31.4e9"), (2, "16.6e9"), (3, "1.9e9"))),
    *(("GPT-3 175B", "adapters", f"rank {rank}", figure, "parameter", LORA, lambda rank=rank: _adapters(rank))
      for rank, figure in ((1, "4.7e6"), (8, "37.7e6"))),
)  # fmt: skip


def compute() -> list[dict[str, Any]]:
    """Rows of the table: one row a published figure."""
    rows = []
    for subject, quantity, convention, figure, unit, source, ours in FIGURES:
        value = ours()
        holds = Fraction(value) in Printed(figure).region
        rows.append(
            {
                "subject": subject,
                "quantity": quantity,
                "convention": convention,
                "published": figure,
                "value": float(value),
                "unit": unit,
                "holds": holds,
                "source": source,
                "difference": int(not holds),
                "met_by": PUBLISHED,
            }
        )
    return rows
