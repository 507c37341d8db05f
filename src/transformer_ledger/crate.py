"""results/ro-crate-metadata.json: the run as a Workflow Run RO-Crate, for programs that know nothing of this project.

It says which workflow made which files from which settings with which packages. Sizes and hashes are those of the seals:
of the files nothing is hashed again. The profiles want the workflow itself in the folder, so workflow.smk is a copy of the
Snakefile; the rest of the code stands there by its hash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rocrate.model.computationalworkflow import ComputationalWorkflow
from rocrate.model.contextentity import ContextEntity
from rocrate.model.file import File
from rocrate.rocrate import ROCrate

RELEASED = "2026-12-03"
"""Of this version, as in CITATION.cff. The format wants a date; that of the run would differ between two equal runs."""
# Names that the profiles ask for; nothing is fetched from them.
PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": ("Process Run Crate", "0.5"),
    "https://w3id.org/ro/wfrun/workflow/0.5": ("Workflow Run Crate", "0.5"),
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": ("Workflow RO-Crate", "1.0"),
}
WORKFLOW = "workflow.smk"
VERSION = "1.1"  # of RO-Crate, on which the profiles are built
CONTEXT = "https://w3id.org/ro/terms/workflow-run/context"
LICENSE = "https://spdx.org/licenses/MIT"
SNAKEMAKE = "https://w3id.org/workflowhub/workflow-ro-crate#snakemake"
FORMATS = {
    ".parquet": "application/vnd.apache.parquet",
    ".html": "text/html",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".csv": "text/csv",
    ".smk": "text/x-snakemake",
}
OTHER = "application/octet-stream"
Seals = Mapping[str, Mapping[str, Any]]


def _entity(crate: ROCrate, id: str, type: str | Sequence[str], **properties: Any) -> ContextEntity:
    return crate.add(ContextEntity(crate, id, properties={"@type": type, **properties}))


def _file(crate: ROCrate, path: str, seal: Mapping[str, Any]) -> File:
    """One file of results/, as its seal has it."""
    name = path.removeprefix("results/")
    about = {
        "name": name,
        "description": f"made by the job {seal['job']}",
        "encodingFormat": FORMATS.get(Path(name).suffix, OTHER),
        "contentSize": str(seal["content_bytes"]),
        "sha256": seal["content_sha256"],
    }
    return crate.add(File(crate, dest_path=name, properties=about))


def _workflow(crate: ROCrate, seals: Seals, text: bytes) -> ComputationalWorkflow:
    """The workflow, with a hash over the code of all its jobs as its version, and the packages that it ran with."""
    code = {f"{seal['job']} {seal['sources']} {seal.get('files')}\n" for seal in seals.values()}
    about = {
        "name": "Transformer Ledger",
        "description": "Snakefile of the workflow; `version` is a SHA-256 over the code of all its jobs",
        "version": hashlib.sha256("".join(sorted(code)).encode()).hexdigest(),
        "encodingFormat": FORMATS[".smk"],
        "contentSize": str(len(text)),
        "sha256": hashlib.sha256(text).hexdigest(),
    }
    workflow = crate.add(ComputationalWorkflow(crate, dest_path=WORKFLOW, properties=about))
    home = {"@id": "https://snakemake.github.io"}
    workflow["programmingLanguage"] = _entity(
        crate, SNAKEMAKE, "ComputerLanguage", name="Snakemake", alternateName="snakemake", url=home, identifier=home
    )
    packages = sorted({pair for seal in seals.values() for pair in seal["packages"].items()})
    workflow["softwareRequirements"] = [
        _entity(crate, f"pkg:pypi/{package}@{version}", "SoftwareApplication", name=package, softwareVersion=version)
        for package, version in packages
    ]
    return workflow


def _settings(crate: ROCrate, config: Mapping[str, Any]) -> tuple[list[ContextEntity], list[ContextEntity]]:
    """Each section of the config as a parameter of the workflow, and its value in this run, as JSON text."""
    parameters, values = [], []
    for name, value in sorted(config.items()):
        text = json.dumps(value, sort_keys=True, ensure_ascii=False)
        parameters.append(
            _entity(crate, f"#parameter-{name}", "FormalParameter", name=name, additionalType="PropertyValue")
        )
        values.append(_entity(crate, f"#config-{name}", "PropertyValue", name=name, value=text))
        parameters[-1]["workExample"], values[-1]["exampleOfWork"] = values[-1], parameters[-1]
    return parameters, values


def compute(*, config: Mapping[str, Any], snakefile: str, record: str, provenance: Seals) -> dict[str, str]:
    """The JSON-LD text, and the Snakefile. `config` is the checked config by section, `record` the path of the record."""
    made = json.loads(Path(record).read_text(encoding="utf-8"))
    crate = ROCrate(version=VERSION)
    files = [_file(crate, path, seal) for path, seal in sorted({**made["outputs"], **provenance}.items())]
    workflow = _workflow(crate, made["outputs"], snakefile.encode())
    workflow["input"], values = _settings(crate, config)
    machine = f"{made['machine']['processor']}, {made['machine']['system']}, Python {made['machine']['python']}"
    action = _entity(crate, "#run", "CreateAction", name="Run of Transformer Ledger", description=f"on {machine}")
    action["instrument"], action["object"], action["result"] = workflow, values, files
    action["agent"] = author = _entity(crate, "#authors", "Organization", name="The Transformer Ledger authors")
    root = crate.root_dataset
    root["mainEntity"], root["mentions"], root["author"] = workflow, action, author
    root["conformsTo"] = [
        _entity(crate, id, "CreativeWork", name=name, version=version) for id, (name, version) in PROFILES.items()
    ]
    crate.name, crate.datePublished = "Results of Transformer Ledger", RELEASED
    crate.description = "Claims about the Transformer, judged, and exact cost ledgers of decoders, from one run"
    crate.license = _entity(crate, LICENSE, "CreativeWork", name="MIT", description="MIT licence")
    crate.metadata.extra_contexts.append(CONTEXT)
    crate.metadata["conformsTo"] = [{"@id": id} for id in (f"https://w3id.org/ro/crate/{VERSION}", list(PROFILES)[-1])]
    text = json.dumps(crate.metadata.generate(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    return {"results/ro-crate-metadata.json": text, f"results/{WORKFLOW}": snakefile}
