"""Bytes that training keeps for N parameters. Unit everywhere: [byte].

Sources: Kingma and Ba 2015, arXiv:1412.6980 (Adam's two moments); Rajbhandari et al. 2020, arXiv:1910.02054 (ZeRO:
which item is divided at which stage); Micikevicius et al. 2018, arXiv:1710.03740 (master weights); Shazeer and Stern
2018, arXiv:1804.04235 (Adafactor); Dettmers et al. 2022, arXiv:2110.02861 (8-bit moments).
"""

from __future__ import annotations

from typing import Any

from transformer_ledger.formulas.shim import ceiling_quotient, formula


@formula
def per_parameter(N: Any, b: Any) -> Any:
    """An item that holds one number of b bytes for each parameter.  [byte]"""
    return N * b


@formula
def per_tensor(n: Any, b: Any) -> Any:
    """An item with one number of b bytes for each of n tensors, such as the step counters of torch's AdamW.  [byte]"""
    return n * b


@formula
def quantised(N: Any, b: Any, n: Any) -> Any:
    """N numbers of b bytes in n groups, each group with a scale in fp32 (8-bit optimisers).  [byte]"""
    return N * b + 4 * n


@formula
def factored(E: Any, m: Any, d: Any) -> Any:
    """Numbers that Adafactor keeps for the second moments of E matrices of m rows and d columns.  [1]"""
    return E * (m + d)


@formula
def sharded(N: Any, G: Any, b: Any) -> Any:
    """An item of N numbers of b bytes, divided over G devices: the bytes on the device that holds the most.  [byte]"""
    return ceiling_quotient(N, G) * b


@formula
def adamw_fp32(N: Any) -> Any:
    """Weights, gradients and both moments of AdamW in fp32, 4 bytes each, without the step counters.  [byte]"""
    return (4 + 4 + 4 + 4) * N
