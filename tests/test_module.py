"""Another Snakefile takes this workflow as a module, with its own config and prefix."""

import json
import re

import pytest
from conftest import SMALL, copy_project, snakemake

from transformer_ledger import seals, tables
from transformer_ledger.config import ConfigError, laid_over, load

HOST = """
configfile: "mine.json"


module ledger:
    snakefile: "parts/ledger/workflow/Snakefile"
    config: config["ledger"]
    prefix: "our costs"


use rule * from ledger as ledger_*


rule all:
    default_target: True
    input: "costs.txt"


rule costs:
    input: rules.ledger_all.input
    output: "costs.txt"
    shell: "echo {input:q} > {output}"
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """A workflow that holds a copy of the project, and takes it with one more model and without one of its studies."""
    folder = tmp_path_factory.mktemp("host")
    (folder / "parts/ledger").mkdir(parents=True)
    copy_project(folder / "parts/ledger")
    (folder / "Snakefile").write_text(HOST)
    mine = {"models": {"small": {"architecture": SMALL}, "llama-3-70b": None}, "study": {"classification": None}}
    (folder / "mine.json").write_text(json.dumps({"ledger": mine, "other": 1}))
    return folder


def test_a_dry_run_lists_the_jobs_of_that_config_under_the_prefix(host):
    done = snakemake(host, "--dry-run", "--printshellcmds")
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    commands = re.findall(r"python -m transformer_ledger (.*)", text)
    outputs = {re.search(r"--output 'our costs/results/(\S+?)\.\w+'", command)[1] for command in commands}
    assert {"execution/small", "execution/gpt2", "ledger/matmul", "report", "provenance", "summary"} <= outputs
    assert not {"execution/llama-3-70b", "study/classification"} & outputs
    for command in commands:
        assert re.match(r"--directory 'our costs/' --spec \S+ --output 'our costs/results/", command)
        assert re.search(r"> 'our costs/logs/\S+' 2>&1", command)
    assert not [path for path in (host / "our costs", host / "results", host / "logs") if path.exists()]


def test_a_job_runs_there_in_place_of_a_damaged_file(host):
    target = "our costs/results/experiment/rope_dot_product.parquet"
    (host / target).parent.mkdir(parents=True)
    (host / target).write_bytes(b"")
    done = snakemake(host, target)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{target}: without a seal of this version; it is made anew" in done.stderr
    rows = tables.read(host / target, "experiment/rope_dot_product")
    assert rows
    assert all(row["holds"] for row in rows)
    assert seals.check("results/experiment/rope_dot_product.parquet", host / "our costs/results")
    assert not (host / "results").exists()


def test_a_modules_config_is_held_against_the_schema(host, monkeypatch):
    monkeypatch.chdir(host)
    path = host / "parts/ledger/config.yaml"
    with pytest.raises(ConfigError, match=r"^the module's config: modles: .*did you mean 'models'"):
        load(*laid_over(path, {"modles": {}}))
    with pytest.raises(ConfigError, match=r"^the module's config: models.small.architecture.layers: "):
        load(*laid_over(path, {"models": {"small": {"architecture": {**SMALL, "layers": 0}}}}))
