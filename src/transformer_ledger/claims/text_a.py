"""The claims of text A, "L'arquitectura Transformer", section by section."""

from __future__ import annotations

from transformer_ledger.claims.claim import Claim

TITLE = "L'arquitectura Transformer"

CLAIMS: tuple[Claim, ...] = ()
