"""The run as a Workflow Run RO-Crate: what its profiles say MUST be, checked here, because their own validator needs the network."""

import datetime
import hashlib
import json
import shutil

import pytest
import yaml
from conftest import ROOT

from transformer_ledger import crate, seals, verify

CRATE = "ro-crate-metadata.json"
PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5",
    "https://w3id.org/ro/wfrun/workflow/0.5",
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0",
}


@pytest.fixture(scope="module")
def results(finished):
    return finished / "results"


@pytest.fixture(scope="module")
def entities(results):
    made = json.loads((results / CRATE).read_text())
    assert made.keys() == {"@context", "@graph"}
    assert made["@context"][0] == "https://w3id.org/ro/crate/1.1/context"
    found = {entity["@id"]: entity for entity in made["@graph"]}
    assert len(found) == len(made["@graph"])
    return found


def ids(value):
    """Every {"@id": …} in a value, none deeper than in a list: the graph is flat."""
    return {part["@id"] for part in (value if isinstance(value, list) else [value]) if isinstance(part, dict)}


def test_the_graph_is_whole(entities):
    for entity in entities.values():
        assert entity["@type"]
        for key, value in entity.items():
            for other in ids(value):
                assert other in entities or other.startswith("https://"), (entity["@id"], key)
    descriptor, root = entities[CRATE], entities["./"]
    assert (descriptor["@type"], root["@type"]) == ("CreativeWork", "Dataset")
    assert descriptor["about"] == {"@id": "./"}
    assert "https://w3id.org/ro/crate/1.1" in ids(descriptor["conformsTo"])
    assert datetime.date.fromisoformat(root["datePublished"])
    assert root["name"]
    assert root["description"]
    assert entities[root["license"]["@id"]]["name"] == "MIT"
    assert ids(root["conformsTo"]) == PROFILES
    assert {entities[id]["@type"] for id in PROFILES} == {"CreativeWork"}


def test_workflow_parameters_and_run_are_what_the_profiles_demand(entities):
    root = entities["./"]
    workflow = entities[root["mainEntity"]["@id"]]
    assert {"File", "SoftwareSourceCode", "ComputationalWorkflow"} == set(workflow["@type"])
    assert workflow["@id"] in ids(root["hasPart"])
    assert entities[workflow["programmingLanguage"]["@id"]]["@type"] == "ComputerLanguage"
    parameters = [entities[id] for id in ids(workflow["input"])]
    for parameter in parameters:
        assert parameter["@type"] == "FormalParameter"
        assert parameter["additionalType"]
        assert entities[parameter["workExample"]["@id"]]["exampleOfWork"] == {"@id": parameter["@id"]}
    action = entities[root["mentions"]["@id"]]
    assert action["@type"] == "CreateAction"
    assert action["instrument"] == root["mainEntity"]
    assert ids(action["object"]) == {parameter["workExample"]["@id"] for parameter in parameters}


def test_it_holds_the_config_the_packages_and_every_file_as_its_seal_has_it(results, entities):
    record = verify.load(results)
    action = entities["#run"]
    paths = {*record, "results/provenance.json"}
    assert ids(action["result"]) == {path.removeprefix("results/") for path in paths} <= ids(entities["./"]["hasPart"])
    for path in {*paths, "results/workflow.smk"}:
        content = (results / path.removeprefix("results/")).read_bytes()
        entity = entities[path.removeprefix("results/")]
        assert "File" in entity["@type"]
        assert entity["contentSize"] == str(len(content))
        assert entity["sha256"] == hashlib.sha256(content).hexdigest()
    assert (results / "workflow.smk").read_bytes() == (ROOT / "Snakefile").read_bytes()
    batch = json.loads(entities["#config-workloads"]["value"])
    assert batch == record["results/ledger/matmul.parquet"]["settings"]["workloads"]
    used = {pair for seal in record.values() for pair in seal["packages"].items()}
    needs = [entities[id] for id in ids(entities["workflow.smk"]["softwareRequirements"])]
    assert {(one["name"], one["softwareVersion"]) for one in needs} == used


def test_the_same_record_gives_the_same_bytes(results, monkeypatch):
    """Also on another day: the only date is that of the version."""
    monkeypatch.chdir(results.parent)
    spec = seals.read("results/ro-crate-metadata.json")
    record = "results/provenance.json"
    made = crate.compute(**spec["settings"], record=record, provenance={record: seals.read(record)})
    assert made["results/ro-crate-metadata.json"] == (results / CRATE).read_text()
    assert str(yaml.safe_load((ROOT / "CITATION.cff").read_text())["date-released"]) == crate.RELEASED


def test_a_crate_of_another_run_is_named(results, tmp_path):
    theirs = shutil.copytree(results, tmp_path / "theirs")
    path = seals.place(CRATE, theirs)
    seal = json.loads(path.read_text())
    seal["read"]["results/provenance.json"] = "0" * 64
    path.write_text(json.dumps(seal))
    changed = [(one.name, one.why) for one in verify.findings(theirs) if one.kind == "changed"]
    assert changed == [(CRATE, "made from another results/provenance.json")]
