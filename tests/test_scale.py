"""The cluster profile, and what is said of the benchmarks."""

import json
import re
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
RULES = {
    name: body
    for path in sorted((ROOT / "workflow/rules").glob("*.smk"))
    for name, body in re.findall(r"^rule (\w+):\n((?:    .*\n|\n)+)", path.read_text(encoding="utf-8"), re.M)
}


def needs(rule):
    """Memory [MB] and time [minute] that a rule asks for."""
    text = RULES.get(rule) or (ROOT / f"workflow/rules/{rule}.smk").read_text(encoding="utf-8")  # of a rule in a loop
    found = re.search(r"\n +threads: \d+\n +resources:\n +mem_mb=(\d+),\n +runtime=(\d+),\n", text)
    assert found, rule
    return tuple(map(int, found.groups()))


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_says_what_it_needs(rule):
    assert all(number > 0 for number in needs(rule))


MEASURED = json.loads((ROOT / "benchmarks/results/jobs.json").read_text(encoding="utf-8"))["jobs"]


@pytest.mark.parametrize("job", MEASURED)
def test_a_rule_asks_for_twice_the_memory_and_ten_times_the_time_that_its_jobs_took(job):
    kind, _, name = job.partition("/")
    memory, minutes = needs(name if name in RULES else kind)
    assert memory * 1e6 >= 2 * MEASURED[job]["memory"]
    assert minutes * 60 >= 10 * MEASURED[job]["wall"]["median"]


def test_the_profile_names_rules_that_exist():
    profile = yaml.safe_load((ROOT / "profiles/slurm/config.yaml").read_text(encoding="utf-8"))
    assert profile["executor"] == "slurm"
    assert profile["slurm-status-command"] == "squeue"
    named = [entry.split("=")[0] for key in ("groups", "set-threads") for entry in profile[key]]
    assert named
    assert set(named) <= RULES.keys()
    groups = {entry.split("=")[1] for entry in profile["groups"]}
    assert {entry.split("=")[0] for entry in profile["group-components"]} == groups


@pytest.fixture
def table(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import table

    yield table
    sys.modules.pop("table")


def test_the_page_of_benchmarks_is_made_from_its_results(table):
    assert (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8") == table.text(table.read())


def test_readme_quotes_the_benchmarks(table):
    """Each figure in README's section stands in the results, rounded as it is there."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.split("## When it gets big")[1].split("\n## ")[0]
    results = table.read()
    speed = results["speed"]["speed"]
    quoted = [f"{speed['rates']['arrays: all together']['median'] / 1e6:.1f} million configurations a second"]
    quoted.append(f"{table.number(speed['ratios']['llm-analysis 0.2.2: inference()']['median'])} times")
    for one in results["sweep"]["sweep"].values():
        quoted.append(
            f"{one['rows']:,} rows: {table.number(one['wall']['median'])} s, {one['memory'] / 2**20:,.0f} MiB"
        )
    for figure in quoted:
        assert figure in " ".join(section.split()), figure
    assert json.dumps(results).find(str(ROOT)) == -1
