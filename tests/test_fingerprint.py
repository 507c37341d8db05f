"""The fingerprint follows imports and ignores what is not code."""

import pytest

from transformer_ledger import fingerprint


@pytest.fixture
def tree(tmp_path, monkeypatch):
    for name, text in {
        "a": "from transformer_ledger import b\n",
        "b": "def f():\n    from transformer_ledger.c import x\n    return x\n",
        "c": "import numpy\nx = 1  # comment\n",
        "d": "y = 2\n",
    }.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setattr(fingerprint, "SOURCE", tmp_path)

    def fresh():
        for cached in (fingerprint._module, fingerprint.closure):
            cached.cache_clear()
        return fingerprint.sources("transformer_ledger.a"), tmp_path

    yield fresh
    fresh()


def test_closure_follows_imports_inside_functions(tree):
    tree()
    assert fingerprint.closure("transformer_ledger.a") == {f"transformer_ledger.{name}" for name in "abc"}
    assert fingerprint.packages("transformer_ledger.a").keys() == {"python", "numpy"}
    assert fingerprint.packages("transformer_ledger.d").keys() == {"python"}


@pytest.mark.parametrize(
    ("name", "text", "changes"),
    [
        ("c", "import numpy\nx = 2\n", True),
        ("c", "import numpy\n\n# other comment\nx = 1\n", False),
        ("d", "y = 3\n", False),
        ("b", "def f():\n    from transformer_ledger.d import y\n    return y\n", True),
    ],
)
def test_only_code_in_the_closure_counts(tree, name, text, changes):
    before, folder = tree()
    (folder / f"{name}.py").write_text(text)
    assert (tree()[0] != before) is changes
