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


def test_what_was_learnt_is_what_is_found(tree, tmp_path_factory, monkeypatch):
    """What is kept gives the same hashes without a parse, a changed file is parsed again, and a damaged one is no help."""
    kept = tmp_path_factory.mktemp("kept") / "new" / "fingerprints.json"
    found, folder = tree()

    def parsed(sources=found):
        """How many modules are parsed by a process that begins with what was kept."""
        with monkeypatch.context() as patched:
            parses = []
            patched.setattr(fingerprint, "_known", {})
            patched.setattr(fingerprint.ast, "parse", lambda content: parses.append(content) or compile_tree(content))
            fingerprint.learn(kept)
            assert tree()[0] == sources
            return len(parses)

    compile_tree = fingerprint.ast.parse
    assert [parsed(), parsed()] == [4, 0]
    kept.write_text(kept.read_text().replace('"numpy"', '"torch"'))
    assert [parsed(), parsed()] == [4, 0]
    (folder / "c.py").write_text("import numpy\nx = 2\n")
    monkeypatch.setattr(fingerprint, "_known", {})
    changed = tree()[0]
    assert changed != found
    assert [parsed(changed), parsed(changed)] == [1, 0]
