"""The claims of text B, "Architecture and Cost: Toward Modern Implementations", section by section."""

from __future__ import annotations

from transformer_ledger.claims.claim import Claim

TITLE = "Architecture and Cost: Toward Modern Implementations"

CLAIMS: tuple[Claim, ...] = ()
