"""The faults of `make mutants` are well written: each can be put in, and names jobs of the project."""

import pytest
from mutation import ROOT, mutants


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.name)
def test_a_fault_can_be_put_in(mutant):
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    assert mutant.applied(text) != text
    assert mutant.jobs
    assert all(job.startswith("results/") for job in mutant.jobs)


def test_there_are_enough():
    assert len(mutants()) >= 120
