"""The Python examples of README.md run as they stand."""

import re
from pathlib import Path

import pytest

from transformer_ledger import size

ROOT = Path(__file__).parents[1]
EXAMPLES = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S | re.M)
# What each prints: keys and values of 8 × 8,192 tokens, and of two heads a device; Mixtral's experts; a layer's bytes.
PRINTED = ("8589934592 1073741824", "15032385536", "2*B*T*b*d_h*h_kv 2*B*b*d_h*h_kv")


def test_there_are_three():
    assert len(EXAMPLES) == len(PRINTED) == 3


@pytest.mark.parametrize(("example", "printed"), list(zip(EXAMPLES, PRINTED, strict=True)))
def test_an_example_runs(example, printed, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    exec(compile(example, "README.md", "exec"), {})
    assert printed in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 0}, "0' is not an integer"),
        ({"layout": "gpu=1"}, "is no layout"),
        ({"heads": 1}, "no option of size"),
    ],
)
def test_a_wrong_option_is_an_error_and_ends_no_process(options, message):
    with pytest.raises(ValueError, match=message):
        size.of(ROOT / "resources/models/gpt2.json", **options)


def test_an_option_of_none_is_its_default():
    path = ROOT / "resources/models/gpt2.json"
    assert size.of(path, layout=None, batch=None, execute=None) == size.of(path)
