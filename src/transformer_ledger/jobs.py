"""Which settings each job uses: its spec, from the normalised config alone.

A job is named by the path of its output without `results/` and the suffix: `execution/gpt2`, `ledger/matmul`, `claims`.
Its spec holds exactly the settings it uses, the hash of its code, the versions of its packages and the digests of the
tables it reads, so a rule that passes the spec as a parameter reruns when, and only when, one of them changes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from transformer_ledger import fingerprint
from transformer_ledger.model import ModelSpec
from transformer_ledger.shrunken import public

MAIN = f"{fingerprint.PACKAGE}.__main__"
CHECKPOINT = "results/checkpoint/model.safetensors"
# Outputs beside the one that names the job. The checkpoint job's own table is its loss curve.
ALIASES = {
    "experiment/blocked_softmax_states": "experiment/blocked_softmax",
    "study/loss": "study/checkpoint",
    "study/extension_tensors": "study/extension",
    "study/extension_runs": "study/extension",
}
# The ledgers, and what each reads of the config besides the models.
LEDGERS = {
    "parameters": (),
    "training_state": ("recipes",),
    "kv_cache": ("workloads", "cache_dtypes"),
    "matmul": ("workloads",),
    "activations": ("workloads", "activations"),
    "training_compute": (),
    "fit": ("devices", "weight_dtypes", "workloads", "cache_dtypes", "recipes"),
    "conventions": ("workloads",),
    "agreement": ("workloads", "cache_dtypes"),
}
UNEXECUTED = ("ledger/training_compute", "ledger/fit", "ledger/conventions")  # ledgers that read no execution
KINDS = ("verification", "experiment", "timing", "study")
# What a study or verification reads of a study, and cannot do without.
STUDIES_READ = {
    "study/classification": ("study/checkpoint", [CHECKPOINT, "results/study/loss.parquet"]),
    "verification/checkpoint": ("study/checkpoint", [CHECKPOINT, "results/study/loss.parquet"]),
    "verification/classification": ("study/classification", ["results/study/classification.parquet"]),
}
Config = Mapping[str, Any]


def canonical(value: Any) -> str:
    """One JSON text for one value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def job_of(path: str) -> str:
    """The job that makes `path`."""
    name = path.removeprefix("results/").rsplit(".", 1)[0]
    return "study/checkpoint" if path == CHECKPOINT else ALIASES.get(name, name)


def module_of(job: str) -> str:
    """The module that does `job`, relative to the package."""
    kind = job.split("/")[0]
    return {"execution": "executed.run", "claims": "claims.table", "report": "report.page"}.get(
        kind, job.replace("/", ".")
    )


def workloads_of(config: Config, model: str) -> dict[str, Any]:
    """The workloads that fit into the model's context."""
    context = config["models"][model]["spec"]["context"]
    return {name: load for name, load in config["workloads"].items() if load["context"] <= context}


def models_read(config: Config, kind: str, name: str) -> list[str]:
    """The models whose execution tables a ledger or verification reads, in the config's order."""
    if kind == "ledger":
        return list(config["models"])
    named = config.get(kind, {}).get(name, {}).get("models", [])
    return [model for model in config["models"] if model in named]


def _specs(config: Config, models: Sequence[str]) -> dict[str, Any]:
    return {name: config["models"][name]["spec"] for name in models}


def _runs(config: Config, names: Sequence[str]) -> dict[str, Any]:
    runs = {name: config["training_runs"][name] for name in names}
    return {name: {**run, "architecture": config["models"][run["model"]]["spec"]} for name, run in runs.items()}


def _stepped(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """What an optimiser step needs of a recipe: how it is shared by devices is arithmetic, and not run."""
    return {key: value for key, value in recipe.items() if key not in ("devices", "zero_stage")}


def _public(model: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the ledger must know of a model, beside its spec, to predict its saved tensors in transformers."""
    return public(model["hf_config"], ModelSpec.from_json(model["spec"]))


def settings(config: Config, job: str) -> dict[str, Any]:
    """The part of the config that `job` uses, with the names of models and runs resolved."""
    kind, _, name = job.partition("/")
    every = list(config["models"])
    if kind == "execution":
        model = config["models"][name]
        return {
            "model": model["spec"],
            "hf_config": model["hf_config"],
            "workloads": workloads_of(config, name),
            "recipes": {name: _stepped(recipe) for name, recipe in config["recipes"].items()},
            "cache_dtypes": config["cache_dtypes"],
            "activations": config["activations"],
        }
    if job == "ledger/training_compute":
        return {"runs": _runs(config, list(config["training_runs"]))}
    if kind == "ledger":
        own: dict[str, Any] = {"models": _specs(config, every), **{key: config[key] for key in LEDGERS[name]}}
        if name == "activations":
            families = {model: _public(config["models"][model]) for model in every}
            own["public"] = {model: family for model, family in families.items() if family}
        return own
    if kind in KINDS:
        own = dict(config[kind][name])
        if "models" in own:
            own["models"] = _specs(config, own["models"])
        if "runs" in own:
            own["runs"] = _runs(config, own["runs"])
        return own
    if job == "report":
        shown = ("models", "workloads", "training_runs", "recipes", "cache_dtypes", "devices", "report")
        return {key: config[key] for key in shown}
    return {}


def spec(config: Config, job: str, inputs: Sequence[str] = (), files: Sequence[str] = ()) -> dict[str, Any]:
    """The spec of `job`, which reads the tables `inputs` and the package files `files` (templates, styles).

    `digest` is the hash of the rest: two outputs with one digest were made from the same settings, code, packages and,
    through `inputs`, the same tables.
    """
    module = f"{fingerprint.PACKAGE}.{module_of(job)}"
    made: dict[str, Any] = {
        "job": job,
        "settings": settings(config, job),
        "sources": fingerprint.sources(MAIN, module),
        "packages": fingerprint.packages(MAIN, module),
        "inputs": {path: digest_of(config, path) for path in sorted(inputs)},
    }
    if files:
        made["files"] = fingerprint.content(*sorted(files))
    return {**made, "digest": hashlib.sha256(canonical(made).encode()).hexdigest()}


def digest_of(config: Config, path: str) -> str:
    """The digest that the file `path` should carry."""
    job = job_of(path)
    return str(spec(config, job, inputs_of(config, job))["digest"])


def inputs_of(config: Config, job: str) -> list[str]:
    """The files that `job` reads; the page reads every table but the executions."""
    kind, _, name = job.partition("/")
    if job in STUDIES_READ:
        return STUDIES_READ[job][1]
    if kind in ("ledger", "verification") and job not in UNEXECUTED:
        return [f"results/execution/{model}.parquet" for model in models_read(config, kind, name)]
    if job == "claims":
        return [f"results/verification/{name}.parquet" for name in names_of(config, "verification")]
    if job in ("report", "summary"):
        return [path for path in tables_of(config) if not path.startswith("results/execution/")]
    if job == "provenance":
        return tables_of(config)
    return []


def names_of(config: Config, kind: str) -> list[str]:
    """The jobs of one kind, without those whose study is left out."""

    def possible(job: str) -> bool:
        if job not in STUDIES_READ:
            return True
        read = STUDIES_READ[job][0]
        return read.split("/")[1] in config["study"] and possible(read)

    return [name for name in sorted(config[kind]) if possible(f"{kind}/{name}")]


def tables_of(config: Config) -> list[str]:
    """Every table of `results/`."""
    jobs = [f"execution/{name}" for name in config["models"]]
    jobs += [f"ledger/{name}" for name in LEDGERS]
    made = [f"{kind}/{name}" for kind in KINDS for name in names_of(config, kind)]
    jobs += [job for job in made if job != "study/checkpoint"]
    jobs += [alias for alias, job in ALIASES.items() if job in made]
    return [f"results/{job}.parquet" for job in [*jobs, "claims"]]
