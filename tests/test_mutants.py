"""The faults of `make mutants` are well written, and a run notices the few that are tried here, with the minimal config."""

import pytest
from conftest import copy_project
from mutation import ROOT, TABLE, mutants, noticed, recorded, survivors, table, tried


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.name)
def test_a_fault_can_be_put_in(mutant):
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    assert mutant.applied(text) != text
    assert mutant.jobs
    assert all(job.startswith("results/") for job in mutant.jobs)


def test_there_are_enough():
    assert len(mutants()) >= 120


def test_the_record_has_each_fault_and_no_survivor():
    assert survivors(recorded()) == {}
    assert TABLE.read_text(encoding="utf-8") == table(recorded()), "make mutants writes docs/mutants.md"


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return copy_project(tmp_path_factory.mktemp("mutants"))


def test_without_a_fault_there_is_nothing_to_notice(finished):
    assert noticed(finished) == []


@pytest.mark.parametrize("mutant", [one for one in mutants() if one.ci], ids=lambda mutant: mutant.name)
def test_a_run_notices_a_fault(finished, scratch, mutant):
    outcome, said = tried(mutant, scratch, finished, "--configfile", "config.minimal.yaml")
    assert outcome == "noticed", said


def test_what_is_tried_here_is_of_every_kind():
    tried_files = {one.file.split("/")[2] for one in mutants() if one.ci}
    assert tried_files >= {"formulas", "ledger", "reference", "experiment", "verification", "executed"}
