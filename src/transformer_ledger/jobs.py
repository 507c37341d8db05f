"""Every job: what it uses of the config, what it reads and what it makes; and its spec, from the normalised config.

A job is named by its module and its output: `execution/gpt2`, `ledger/matmul`, `claims`. Its spec holds exactly the
settings it uses, the hash of its code, the versions of its packages and the digests of the files it reads. The digest
of all that is what Snakemake compares, so a job reruns when, and only when, one of them changes; the spec itself goes
to the job by file.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformer_ledger import fingerprint, seals
from transformer_ledger.ledger.layout import Layout, untrained
from transformer_ledger.model import ModelSpec
from transformer_ledger.report.parts import shown
from transformer_ledger.shrunken import public
from transformer_ledger.sweep import grid

MAIN = f"{fingerprint.PACKAGE}.__main__"
Config = Mapping[str, Any]


def canonical(value: Any) -> str:
    """One JSON text for one value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _specs(config: Config, models: Sequence[str]) -> dict[str, Any]:
    return {name: config["models"][name]["spec"] for name in models}


def _runs(config: Config, names: Sequence[str]) -> dict[str, Any]:
    runs = {name: config["training_runs"][name] for name in names}
    return {name: {**run, "architecture": config["models"][run["model"]]["spec"]} for name, run in runs.items()}


def _keys(*keys: str) -> Callable[[Config, str], dict[str, Any]]:
    """Whole sections of the config."""
    return lambda config, job: {key: config[key] for key in keys}


def _models(*keys: str) -> Callable[[Config, str], dict[str, Any]]:
    """Every model's spec, and whole sections."""
    return lambda config, job: {**_keys(*keys)(config, job), "models": _specs(config, config["models"])}


def _own(config: Config, job: str) -> dict[str, Any]:
    """The job's own section, with the names of models and runs resolved."""
    kind, name = job.split("/")
    resolve = {"models": _specs, "runs": _runs}
    return {key: resolve[key](config, value) if key in resolve else value for key, value in config[kind][name].items()}


def _counted(config: Config, job: str) -> dict[str, Any]:
    """With the workloads that the models of the executions ran."""
    return {**_own(config, job), **_keys("workloads")(config, job)}


def _softmax(config: Config, job: str) -> dict[str, Any]:
    """With the text's row, which is written once, in E2."""
    return {**_own(config, job), "printed": config["experiment"]["blocked_softmax"]["printed"]}


def _execution(config: Config, job: str) -> dict[str, Any]:
    """One model, and what is done with it: the workloads within its context, and the recipes."""
    model = config["models"][job.split("/")[1]]
    return {
        "model": model["spec"],
        "hf_config": model["hf_config"],
        "workloads": {k: v for k, v in config["workloads"].items() if v["context"] <= model["spec"]["context"]},
        "recipes": config["recipes"],
        "cache_dtypes": config["cache_dtypes"],
        "activations": config["activations"],
        "layouts": _layouts(config, job.split("/")[1]),
    }


def _layouts(config: Config, model: str = "") -> dict[str, Any]:
    """The layouts, or those of one model and whether it is trained so, with the recipe and workload that each names."""
    made = {}
    for name, given in config["layouts"].items():
        if model not in ("", *given["models"]):
            continue
        named = ("models", "recipe", "workload", "cache_dtype")
        one = {key: given[key] for key in named if not model or key != "models"}
        one |= {"state": config["recipes"][given["recipe"]], **config["workloads"][given["workload"]]}
        one["layout"] = {key: value for key, value in given.items() if key not in named}
        if model:
            spec = ModelSpec.from_json(config["models"][model]["spec"])
            one["trained"] = not untrained(spec, Layout(**one["layout"]), one["state"]["weights"])
        made[name] = one
    return made


def _layout(config: Config, job: str) -> dict[str, Any]:
    """Every layout, and the models that are spread so."""
    layouts = _layouts(config)
    return {
        "layouts": layouts,
        "models": _specs(config, sorted({m for one in layouts.values() for m in one["models"]})),
    }


def _activations(config: Config, job: str) -> dict[str, Any]:
    """With what the ledger must know of a model, beside its spec, to predict its saved tensors in transformers."""
    families = {k: public(v["hf_config"], ModelSpec.from_json(v["spec"])) for k, v in config["models"].items()}
    known = {model: family for model, family in families.items() if family}
    return {**_models("workloads", "activations")(config, job), "public": known}


def _training_compute(config: Config, job: str) -> dict[str, Any]:
    """Every training run, and the workloads that its model was run with."""
    return {**_keys("workloads")(config, job), "runs": _runs(config, list(config["training_runs"]))}


def _sweep(config: Config, job: str) -> dict[str, Any]:
    """The grid of a sweep, without what is asked of it, and the models and recipes in it."""
    _, name, shard = job.split("/")
    sweep = config["sweeps"][name]
    return {
        "sweep": {key: value for key, value in sweep.items() if key not in ("map", "front", "questions")},
        "models": _specs(config, sweep["models"]),
        "recipes": {recipe: config["recipes"][recipe] for recipe in sweep["recipes"]},
        "shard": int(shard),
        "shards": _shards(sweep),
    }


def _shards(sweep: Mapping[str, Any]) -> int:
    return -(-grid.cells(sweep) // sweep["rows_per_job"])


def _answers(config: Config, job: str) -> dict[str, Any]:
    """What is asked of a sweep."""
    name = job.split("/")[1]
    return {"name": name, "sweep": {key: config["sweeps"][name][key] for key in ("map", "front", "questions")}}


def _pictured(config: Config, job: str) -> dict[str, Any]:
    """What the pictures show of the page's models."""
    models = shown(config["models"], config["report"])
    return {"models": {name: {"spec": model["spec"], "label": model["label"]} for name, model in models.items()}}


def _formulas(config: Config, job: str) -> dict[str, Any]:
    """The page's models, what is done with them, and the model that gives the formulas their numbers."""
    models = shown(config["models"], config["report"])
    runs = {name: run for name, run in config["training_runs"].items() if run["model"] in models}
    return {
        "models": {name: {"spec": model["spec"]} for name, model in models.items()},
        "recipes": config["recipes"],
        "training_runs": runs,
        "model": config["report"].get("whatif", {}).get("model"),
    }


def _asked(config: Config, job: str) -> dict[str, Any]:
    """What the ledgers, the formulas and the page use of the user's own model, or of all."""
    report = {**config["report"], "rows_per_table": WHOLE}  # for no file holds the rest
    own = {**config, "sweeps": {}, "report": report}
    if config["own"]:
        own |= {"models": config["own"], "training_runs": {}, "report": {**report, "models": [], "whatif": {}}}
    return {
        "ledgers": {name: settings(own, f"ledger/{name}") for name in QUICK},
        "formulas": settings(own, "formulas"),
        "page_settings": settings(own, "report"),
    }


def _printed(config: Config, job: str) -> dict[str, Any]:
    """The text's own case of an experiment."""
    return {"printed": config["experiment"][job.split("/")[1]]["printed"]}


def _whole(config: Config, job: str) -> dict[str, Any]:
    """The config that decides results, models by their specs; and the workflow."""
    sections = {key: value for key, value in config.items() if key not in ("execution", "own")}
    snakefile = (fingerprint.SOURCE.parents[1] / "Snakefile").read_text(encoding="utf-8")
    return {"config": {**sections, "models": _specs(config, config["models"])}, "snakefile": snakefile}


@dataclass(frozen=True)
class Job:
    """A job, or each job of a kind that has no entry of its own.

    `settings` is the part of the config that it uses. `reads` names jobs, whose files it cannot do without, and kinds
    of jobs, whose tables it reads as far as there are any; of the executions those of the models in its settings, if
    it has any there; or EVERY file that is made before the record. `outputs` are its files where they are not the one
    table of its name, `module` where that is not its name, `files` other files of the package (patterns).
    """

    settings: Callable[[Config, str], dict[str, Any]]
    reads: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    module: str = ""
    files: tuple[str, ...] = ()


def _tables(stem: str, *endings: str) -> tuple[str, ...]:
    return tuple(f"{stem}{ending}.parquet" for ending in endings)


def _pictures(folder: str, *names: str) -> tuple[str, ...]:
    """The files of some pictures: each wide, narrow, and in numbers."""
    return tuple(f"{folder}/{name}{ending}" for name in names for ending in (".svg", "-narrow.svg", ".csv"))


EVERY = "*"
WHOLE = 10**6  # rows of a table that stands in a page alone
ASKED = "ledgers"  # made only where somebody asks for it; the record has it not
QUICK = ("parameters", "training_state", "kv_cache", "matmul", "activations", "training_compute", "fit", "conventions")
LAST = ("provenance", "summary", "crate")  # the record of all files, and what is made after it
_RUN = ("execution",)
PAGE = ("report/**/*.j2", "report/**/*.css", "report/**/*.js", "report/**/*.yaml")
_LISTED = ("verification", "experiment", "timing", "study")  # the config lists their jobs
_SHOWN = ("families", "ledger", *_LISTED, "claims")
JOBS = {
    "execution": Job(_execution, module="executed.run"),
    "families": Job(
        lambda config, job: {"compared": config["families"], **_keys("activations")(config, job)},
        outputs=_tables("", "families", "experiment/decoder"),
        module="executed.families",
    ),
    "ledger/parameters": Job(_models(), _RUN),
    "ledger/training_state": Job(_models("recipes"), _RUN),
    "ledger/kv_cache": Job(_models("workloads", "cache_dtypes"), _RUN),
    "ledger/matmul": Job(_models("workloads"), _RUN),
    "ledger/activations": Job(_activations, _RUN),
    "ledger/training_compute": Job(_training_compute, _RUN),
    "ledger/fit": Job(_models("devices", "weight_dtypes", "workloads", "cache_dtypes", "recipes"), _RUN),
    "ledger/layout": Job(_layout, _RUN),
    "ledger/conventions": Job(_models("workloads"), _RUN),
    "ledger/families": Job(_keys("activations"), ("families",)),
    "ledger/published": Job(_keys()),
    "ledger/agreement": Job(_models("workloads", "cache_dtypes"), _RUN),
    "verification": Job(_own),
    "verification/checkpoint": Job(_own, ("study/checkpoint",)),
    "verification/classification": Job(_own, ("study/classification",)),
    "verification/online_softmax": Job(_softmax, ("experiment/blocked_softmax",)),
    "verification/parameter_rule": Job(_own, _RUN),
    "verification/rope_rotation": Job(_own, ("experiment/rope_dot_product",)),
    "verification/training_compute": Job(_counted, _RUN),
    "verification/training_state": Job(_own, _RUN),
    "experiment": Job(_own),
    "experiment/blocked_softmax": Job(_own, outputs=_tables("experiment/blocked_softmax", "", "_states")),
    "timing": Job(_own),
    "study": Job(_own),
    "study/checkpoint": Job(_own, outputs=("study/loss.parquet", "checkpoint/model.safetensors")),
    "study/classification": Job(_own, ("study/checkpoint",)),
    "study/extension": Job(_own, outputs=_tables("study/extension", "", "_tensors", "_runs")),
    "sweep": Job(_sweep, module="sweep.shard"),
    "answers": Job(_answers, ("sweep",), ("answers/{name}.parquet", "maps/{name}.parquet"), "sweep.answers"),
    "claims": Job(_keys(), ("verification",), module="claims.table"),
    "figure/output_projection": Job(_keys(), ("verification/output_projection",), _pictures("figure", "heads")),
    "figure/score_scale": Job(_keys(), ("verification/score_scale",), _pictures("figure", "saturation")),
    "figure/rope_precision": Job(_keys(), ("verification/rope_precision",), _pictures("figure", "rotation-error")),
    "figure/ledgers": Job(
        _pictured,
        ("ledger/parameters",),
        _pictures("figure", "parameters", "rule-error", "cache", "attention-share"),
    ),
    "figure/rope_dot_product": Job(
        _printed, ("experiment/rope_dot_product",), _pictures("figure", "rope", "rope-margin")
    ),
    "figure/blocked_softmax": Job(
        _keys(), ("experiment/blocked_softmax",), _pictures("figure", "softmax", "softmax-margin")
    ),
    "figure/checkpoint": Job(_keys(), ("study/checkpoint",), _pictures("figure", "loss")),
    "figure/extension": Job(_keys(), ("study/extension",), _pictures("figure", "extension-curve", "extensions")),
    "figure/attention": Job(_keys(), ("study/attention",), _pictures("figure", "attention-error")),
    "figure/attention_clock": Job(
        _keys(), ("timing/attention",), _pictures("timing/figure", "attention-time", "attention-memory")
    ),
    "figure/matmul_scaling": Job(_keys(), ("timing/matmul_scaling",), _pictures("timing/figure", "scaling")),
    "formulas": Job(_formulas, outputs=("formulas.json",), module="report.algebra"),
    "report": Job(
        _keys("models", "workloads", "training_runs", "recipes", "cache_dtypes", "devices", "sweeps", "report"),
        (*_SHOWN, "answers", "figure", "formulas"),
        ("report.html",),
        "report.page",
        PAGE,
    ),
    ASKED: Job(_asked, (), ("ledgers.html",), "report.quick", PAGE),
    "provenance": Job(_keys(), (EVERY,), ("provenance.json",)),
    "summary": Job(_keys(), _SHOWN, ("summary.txt",)),
    "crate": Job(_whole, ("provenance",), ("ro-crate-metadata.json", "workflow.smk")),
}


def _job(name: str) -> Job:
    return JOBS.get(name) or JOBS[name.split("/")[0]]


def outputs(job: str) -> list[str]:
    """The files that a job writes."""
    name = job.partition("/")[2]
    return [f"results/{path.format(name=name)}" for path in _job(job).outputs or (f"{job}.parquet",)]


def parts(job: str) -> list[str]:
    """Files of the package that a job reads and that are not Python: templates, styles, scripts."""
    return sorted(os.path.relpath(path) for pattern in _job(job).files for path in fingerprint.SOURCE.glob(pattern))


def settings(config: Config, job: str) -> dict[str, Any]:
    """The part of the config that `job` uses, with the names of models and runs resolved."""
    return _job(job).settings(config, job)


class Plan:
    """The jobs of one config, `names`, without those that read a job which is left out.

    `root` is the folder in which results/ and logs/ lie, and in which the jobs run; all paths begin there.
    """

    def __init__(self, config: Config, root: str | Path = ""):
        self.config = config
        self.root = Path(root)
        self._made: dict[str, dict[str, Any]] = {}
        listed = {"execution": list(config["models"]), **{kind: sorted(config[kind]) for kind in _LISTED}}
        listed["sweep"] = [f"{name}/{n:04d}" for name, one in config["sweeps"].items() for n in range(_shards(one))]
        listed["answers"] = list(config["sweeps"])
        every = [f"{kind}/{name}" for kind, names in listed.items() for name in names]
        every += [job for job in JOBS if job.split("/")[0] not in listed]
        known = frozenset(every)

        def possible(job: str) -> bool:
            return job in known and all(possible(read) for read in _job(job).reads if "/" in read)

        self.names = [job for job in every if possible(job)]
        self._makers = {path: job for job in self.names for path in outputs(job)}

    def of(self, kind: str) -> list[str]:
        """Names of the jobs of one kind."""
        return [job.partition("/")[2] for job in self.names if job.startswith(f"{kind}/")]

    def files(self) -> list[str]:
        """Every file of `results/` that a run makes unasked."""
        return [path for path, job in self._makers.items() if job != ASKED]

    def maker(self, path: str) -> str:
        """The job that makes a file."""
        return self._makers[path]

    def inputs(self, job: str) -> list[str]:
        """The files that a job reads."""
        kind, _, name = job.partition("/")
        models = self.config.get(kind, {}).get(name, {}).get("models", self.config["models"])
        found: list[str] = []
        for read in _job(job).reads:
            for path, maker in self._makers.items():
                kind, _, name = maker.partition("/")
                table = read == kind and path.endswith((".parquet", ".svg")) and (kind != "execution" or name in models)
                table = table and (job.split("/")[0] != "answers" or name.split("/")[0] == job.split("/")[1])
                found += [path] if read == maker or table or (read == EVERY and kind not in (*LAST, ASKED)) else []
        return found

    def spec(self, job: str) -> dict[str, Any]:
        """The spec of a job.

        `digest` is the hash of the rest: two outputs with one digest were made from the same settings, code, packages
        and, through `inputs`, the same files.
        """
        if job not in self._made:
            module = _job(job).module or job.replace("/", ".")
            roots = (MAIN, f"{fingerprint.PACKAGE}.{module}")
            made: dict[str, Any] = {
                "job": job,
                "module": module,
                "settings": settings(self.config, job),
                "sources": fingerprint.sources(*roots),
                "packages": fingerprint.packages(*roots),
                "inputs": {path: self.spec(self._makers[path])["digest"] for path in sorted(self.inputs(job))},
            }
            if files := parts(job):
                made["files"] = fingerprint.content(*files)
            self._made[job] = {**made, "digest": hashlib.sha256(canonical(made).encode()).hexdigest()}
        return self._made[job]

    def address(self, job: str) -> str:
        """File and digest of a job's spec, as `--spec` takes them; changes when, and only when, the spec does."""
        return f"logs/{job}.json@{self.spec(job)['digest'][:16]}"

    def faults(self, job: str) -> dict[str, str]:
        """What is wrong with the files of `job` that are there: damaged, or not made from its spec and its inputs.

        OSError where something that is no file lies in the place of one.
        """
        found, results = {}, self.root / "results"
        for path in outputs(job):
            try:
                seal = seals.check(path, results)
                if seal["digest"] != self.spec(job)["digest"]:
                    raise seals.Fault(seals.OTHER)
                for read, wanted in seal["read"].items():
                    if seals.read(read, results).get("content_sha256", wanted) != wanted:
                        raise seals.Fault(f"made from another {read}")
            except (FileNotFoundError, NotADirectoryError):  # nothing there; the run says so where it cannot be made
                continue
            except seals.Fault as fault:
                found[path] = str(fault)
        return found

    def unseen(self, job: str) -> dict[str, str]:
        """The faults that Snakemake, which compares time stamps and its own records, does not see; paths from where it runs."""
        found = {}
        for path, fault in self.faults(job).items():
            path = (self.root / path).as_posix()
            record = Path(".snakemake/metadata", base64.urlsafe_b64encode(path.encode()).decode())
            known = record.read_text(encoding="utf-8") if record.exists() else ""
            if fault != seals.OTHER or not known or self.address(job) in known:
                found[path] = fault
        return found

    def store(self, jobs: Sequence[str] | None = None) -> None:
        """Write the specs of `jobs`, or of all, each at one stroke, where they are not there already."""
        for job in self.names if jobs is None else jobs:
            path, text = self.root / f"logs/{job}.json", canonical(self.spec(job))
            if not path.is_file() or path.read_text(encoding="utf-8") != text:
                path.parent.mkdir(parents=True, exist_ok=True)
                partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
                partial.write_text(text, encoding="utf-8")
                os.replace(partial, path)
