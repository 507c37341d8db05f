"""Every symbol once: its name in the code, its LaTeX, its unit and its meaning. Formulas use these names only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Symbol:
    """A symbol of the formulas; `name` is the parameter's name in `transformer_ledger.formulas`."""

    name: str
    latex: str
    unit: str
    meaning: str


_ROWS = (
    ("B", "B", "sequence", "batch: sequences processed together"),
    ("T", "T", "token", "new tokens in each sequence"),
    ("S", "S", "token", "context: key positions that the newest token attends to"),
    ("w", "w", "token", "attention window, the token itself included"),
    ("C", "C", "token", "rows of the learned position table"),
    ("V", "V", "token", "vocabulary: rows of the embedding table"),
    ("L", "L", "layer", "layers"),
    ("d", "d", "component", "model width (d_model)"),
    ("h", "h", "head", "query heads"),
    ("h_kv", "h_{kv}", "head", "key/value heads"),
    ("d_h", "d_h", "component", "width of one query or key head"),
    ("d_v", "d_v", "component", "width of one value head, where it differs from the key's"),
    ("d_r", "d_r", "component", "rotated width of a query or key head"),
    ("r_q", "r_q", "component", "rank of the query projection (latent attention)"),
    ("r_kv", "r_{kv}", "component", "rank of the cached latent (latent attention)"),
    ("h_i", "h_i", "head", "query heads of an indexer"),
    ("d_i", "d_i", "component", "width of an indexer's heads and of its key"),
    ("k_i", "k_i", "token", "positions that an indexer chooses for each query"),
    ("d_e", "d_e", "component", "width of the embedding table, where it differs from the model's"),
    ("h_s", "h_s", "head", "heads of a fixed state (value heads of Gated DeltaNet)"),
    ("g_s", "g_s", "group", "groups of heads of a fixed state that share keys and queries"),
    ("d_k", "d_k", "component", "key width of a fixed state"),
    ("K", "K", "token", "positions that the convolution before a fixed state reads"),
    ("f", "f", "component", "feed-forward width (d_ff), of one expert where there are experts"),
    ("f_s", "f_s", "component", "total width of the shared experts"),
    ("E", "E", "expert", "experts in a layer"),
    ("k", "k", "expert", "experts that a token is routed to"),
    ("n_g", "n_g", "group", "groups of a layer's experts"),
    ("k_g", "k_g", "group", "groups that a token's experts may come from"),
    ("i", "i", "", "number of a head, or of a pair of components, from 0"),
    ("g", "g", "head", "query heads that share one key/value head"),
    ("theta", r"\theta", "", "base of the rotary frequencies"),
    ("n", "n", "", "copies of a tensor, or terms of a sum"),
    ("m", "m", "", "number of vectors or rows, where a formula counts them"),
    ("N", "N", "parameter", "parameters"),
    ("D", "D", "token", "training tokens"),
    ("b", "b", "byte", "bytes of one stored number"),
    ("G", "G", "device", "devices"),
    ("R", "R", "FLOP/s", "sustained rate of one device"),
    ("F", "F", "FLOP", "floating-point operations, a multiply-add counted as 2"),
    ("W", "W", "device-hour", "published device-hours"),
)

SYMBOLS: dict[str, Symbol] = {row[0]: Symbol(*row) for row in _ROWS}
