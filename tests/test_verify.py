"""Damage of every kind: `verify` names it, and the next run makes it anew and never takes a good page away."""

import json
import os
import random
import re
import shutil
from pathlib import Path

import pytest
from conftest import snakemake

from transformer_ledger import seals, tables, verify
from transformer_ledger.__main__ import main

MINIMAL = ("--configfile", "config.minimal.yaml")


@pytest.fixture
def project(finished, tmp_path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "project"))


@pytest.fixture
def results(finished, tmp_path) -> Path:
    """Results as somebody hands them on: the folder alone, under another name."""
    return Path(shutil.copytree(finished / "results", tmp_path / "theirs"))


def flip(path: Path, place: float = 0.5) -> None:
    """Another bit of a file, its time stamp as before."""
    content, status = bytearray(path.read_bytes()), path.stat()
    content[int(len(content) * place)] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def put(name: str):
    """Another file's content, whole, at a file's place."""
    return lambda path: shutil.copyfile(next(path.parents[1].rglob(name)), path)


def reseal(results: Path, name: str, **changes) -> None:
    """A seal with changes, as a job of another run could have left it."""
    path = seals.place(name, results)
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def rewrite(path: Path) -> None:
    """The same table, written with other metadata, and its seal."""
    tables.write(path, "claims", tables.read(path), {})
    results = path.parent
    reseal(results, "claims.parquet", content_sha256=seals.digest(path), digest="0" * 64)


def other(path: Path) -> None:
    """The summary of another run: whole, and made from other tables."""
    reseal(path.parent, "summary.txt", read={"results/claims.parquet": "0" * 64})


# damage: (what is done, to which file, the line that names it)
DAMAGE = {
    "flipped": (flip, "ledger/matmul.parquet", "changed  ledger/matmul.parquet: changed since it was written"),
    "cut": (cut, "report.html", "changed  report.html: "),
    "emptied": (lambda path: path.write_bytes(b""), "summary.txt", "changed  summary.txt: 0 of "),
    "of other tables": (other, "summary.txt", "changed  summary.txt: made from another results/claims.parquet"),
    "flipped weights": (flip, "checkpoint/model.safetensors", "changed  checkpoint/model.safetensors: changed since"),
    "a flipped record": (flip, "provenance.json", "changed  provenance.json: changed since it was written"),
    "no record": (Path.unlink, "provenance.json", "missing  provenance.json"),
    "swapped": (
        put("teaching.parquet"),
        "execution/modern.parquet",
        "changed  execution/modern.parquet: is results/execution/teaching.parquet",
    ),
    "swapped, of one job": (
        put("blocked_softmax_states.parquet"),
        "experiment/blocked_softmax.parquet",
        "changed  experiment/blocked_softmax.parquet: is results/experiment/blocked_softmax_states.parquet",
    ),
    "gone": (Path.unlink, "claims.parquet", "missing  claims.parquet"),
    "a stranger": (lambda path: path.write_text("x"), "mine.csv", "extra    mine.csv"),
    "of other settings": (rewrite, "claims.parquet", f"changed  claims.parquet: {seals.OTHER}"),
    "a seal": (flip, "seals/claims.parquet.json", "changed  seals/claims.parquet.json: not the seal in the record"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_what_is_wrong_with_a_folder_is_named_with_its_remedy(results, capsys, kind):
    damage, name, line = DAMAGE[kind]
    damage(results / name)
    assert main(["verify", str(results)]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith(line)
    assert len(out) == 2
    assert out[1].startswith("         → ")


def test_whole_results_made_elsewhere_pass_and_one_byte_of_any_file_does_not(results, capsys):
    assert main(["verify", str(results)]) == 0
    assert "every file is as its record says" in capsys.readouterr().out
    draw = random.Random(0)
    files = [path for path in results.rglob("*") if path.is_file() and seals.FOLDER not in path.parts]
    for path in files:
        flip(path, draw.random())
    names = {one.name for one in verify.findings(results) if one.kind == "changed"}
    assert names == {path.relative_to(results).as_posix() for path in files}


def test_a_record_that_does_not_agree_with_itself_is_named(results):
    """What somebody could write who knows the code: a record with other settings, or other inputs, sealed again."""
    path = results / "provenance.json"
    record = json.loads(path.read_text())
    record["outputs"]["results/claims.parquet"]["settings"]["x"] = 1
    record["outputs"]["results/timing/norms.parquet"]["content_sha256"] = "0" * 64
    path.write_text(json.dumps(record))
    reseal(results, "provenance.json", content_sha256=seals.digest(path))
    whys = {(one.name, one.why) for one in verify.findings(results)}
    assert ("claims.parquet", "its settings, code and packages in the record are not those of its digest") in whys
    assert ("report.html", "made from another results/timing/norms.parquet than the record has") in whys


def test_results_of_other_code_and_other_packages_are_whole_and_said_to_be_so(results, capsys, monkeypatch):
    for part, value, said in (
        ("sources", "0" * 64, r"made by other code than this checkout's: \d+ files \(job "),
        ("packages", {"python": "0"}, r"made with other packages than these: \d+ files \(.*here none"),
    ):
        verify._here.cache_clear()
        with monkeypatch.context() as patched:
            patched.setattr(verify.fingerprint, part, lambda *modules, value=value: value)
            assert main(["verify", str(results)]) == 3
        assert re.search(said, capsys.readouterr().out)
    verify._here.cache_clear()


def test_a_folder_without_a_record_is_one_message(tmp_path, capsys):
    for content in (None, "", '{"outputs": 1}'):
        if content is not None:
            (tmp_path / "provenance.json").write_text(content)
        assert main(["verify", str(tmp_path)]) == 2
        assert re.fullmatch(r".*/provenance\.json: .*; run snakemake to make it\n", capsys.readouterr().out)


def listed(folder: Path, *arguments: str) -> tuple[set[str], str]:
    """The jobs that a dry run lists, by their first output, and what it says; the profile's logger lists none."""
    option = re.search(r"^(max-checksum-file-size): (\d+)", (folder / "profiles/default/config.yaml").read_text(), re.M)
    plain = ("--workflow-profile", "none", f"--{option[1]}", option[2])
    done = snakemake(folder, "--dry-run", "--printshellcmds", *MINIMAL, *plain, *arguments)
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    return set(re.findall(r"--output results/(\S+?)\.\w+ ", text)), text


LAST = {"report", "provenance", "summary", "ro-crate-metadata"}


def test_the_next_run_makes_anew_what_is_damaged_and_nothing_else(project):
    """All files have new time stamps, as a copy has them; Snakemake compares contents up to the size in the profile."""
    results = project / "results"
    flip(results / "ledger/fit.parquet")
    put("rope_values.parquet")(results / "verification/norms.parquet")
    reseal(results, "verification/permutation.parquet", digest="0" * 64)  # restored from an older run
    for path in sorted(results.rglob("*"), reverse=True):
        os.utime(path)
    jobs, text = listed(project)
    assert jobs == {"ledger/fit", "verification/norms", "verification/permutation", "claims"} | LAST
    assert "results/ledger/fit.parquet: changed since it was written; it is made anew" in text
    assert f"results/verification/permutation.parquet: {seals.OTHER}; it is made anew" in text


def test_results_without_their_history_are_not_taken_for_those_of_other_settings(project):
    shutil.rmtree(project / ".snakemake")
    jobs, text = listed(project, "--config", "timing={norms: {repeats: {spread: 0.3}}}")
    assert jobs == {"timing/norms"} | LAST
    assert f"results/timing/norms.parquet: {seals.OTHER}" in text


def test_a_good_page_stays_until_there_is_a_new_one_and_a_bad_one_is_never_called_right(project):
    page, words = project / "results/report.html", project / "src/transformer_ledger/report/words.yaml"
    before, right = page.read_bytes(), words.read_text()
    words.write_text("{")
    assert snakemake(project, *MINIMAL).returncode != 0
    assert page.read_bytes() == before
    words.write_text(right)
    cut(page)
    done = snakemake(project, *MINIMAL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"results/report\.html: [\d,]+ of [\d,]+ bytes are left; it is made anew", done.stderr)
    assert page.read_bytes() == before
    assert verify.findings(project / "results") == []


def test_what_is_no_file_is_refused_by_name(project):
    path = project / "results/claims.parquet"
    path.unlink()
    path.mkdir()
    done = snakemake(project, *MINIMAL)
    assert done.returncode != 0
    assert "results/claims.parquet: Is a directory; move it away" in done.stderr
