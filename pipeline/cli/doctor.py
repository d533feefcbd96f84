"""The command `unseen doctor`: what this installation contains, and what the run of params.yaml lacks."""

import platform
import re
import shlex
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any, NamedTuple

from threadpoolctl import threadpool_info

from unseen.config.document import Params
from unseen.experiments.plan.checks import require_files
from unseen.experiments.plan.files import Plan, plan
from unseen.runtime.errors import UserError

_FAISS = ("cpu", "gpu")  # extras whose packages are listed if they are installed: a machine has one of them
# Extras of commands, which are listed also if a package of them is not installed.
_COMMANDS = {
    "lite0": "index, find and ladder without --network",
    "serve": "unseen serve",
    "onnx": "unseen export-model",
    "optuna": "searcher: optuna of a sweep",
    "tensorboard": "train.trackers: [tensorboard]",
    "mlflow": "train.trackers: [mlflow]",
    "wandb": "train.trackers: [wandb]",
}
_LISTED = 5  # differing files of an output
_KERNELS_WITH_AVX512 = ("SkylakeX", "Cooperlake", "SapphireRapids")  # of OpenBLAS
_NO_DEFECT = ("absent", "slow", "REPAIRED")  # marks


class Finding(NamedTuple):
    """A line of the report."""

    name: str
    state: str
    complete: bool = True
    remedy: str = ""
    problem: str = "MISSING"  # the mark of a finding that is not complete


def examine(project: bool = True, verify: bool = False) -> tuple[str, bool]:
    """The report as text, and whether nothing is missing.

    project: the current directory is a project with params.yaml.
    verify: also compares every output of the graph with dvc.lock.
    """
    sections = {
        "Versions": list(_versions()),
        "Extras": list(_extras()),
        "Devices": list(_devices()),
    }
    if project:
        sections |= _run()
    else:
        sections["Graph"] = [Finding("params.yaml", "none: the current directory is in no project")]
    if verify:
        sections["Outputs of dvc.lock"] = list(_outputs())
    lines: list[str] = []
    for heading, findings in sections.items():
        width = max((len(finding.name) for finding in findings), default=0)
        lines.append(heading)
        for finding in findings:
            mark = "ok" if finding.complete else finding.problem
            lines.append(f"  {mark:<7}  {finding.name:<{width}}  {finding.state}".rstrip())
            if finding.remedy:
                lines += [f"           {line.strip()}" for line in finding.remedy.splitlines()]
    complete = all(
        finding.complete or finding.problem in _NO_DEFECT
        for findings in sections.values()
        for finding in findings
    )
    return "\n".join(lines) + "\n", complete


def _run() -> dict[str, list[Finding]]:
    """The sections about params.yaml."""
    try:
        run = plan(Params())
    except UserError as error:
        return {"Run of params.yaml": [Finding("params.yaml", error.what, False, error.remedy)]}
    return {
        "Pretrained weights of the run": list(_weights(run)),
        "Data sets of the run": list(_data_sets(run)),
    }


def _versions() -> Iterator[Finding]:
    yield Finding("unseen", version("unseen"))
    yield Finding("python", f"{platform.python_version()}, {platform.platform()}")
    for requirement in requires("unseen") or ():
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        extra = re.search(r"extra == ['\"](\w+)['\"]", requirement)
        installed = _installed(name)
        if installed is None:
            if extra is None:
                remedy = f"Install it: pip install '{requirement}'"
                yield Finding(name, "not installed", False, remedy)
        elif extra is None or extra[1] in _FAISS:
            yield Finding(name, installed)


def _extras() -> Iterator[Finding]:
    """The extras of commands, and the default network. A missing extra is no defect of the installation."""
    names: dict[str, list[str]] = {extra: [] for extra in _COMMANDS}
    for requirement in requires("unseen") or ():
        group = re.search(r"extra == ['\"](\w+)['\"]", requirement)
        if group is not None and group[1] in names:
            names[group[1]].append(re.split(r"[^\w.-]", requirement, maxsplit=1)[0])
    for extra, packages in names.items():
        states = {name: _installed(name) for name in packages}
        complete = None not in states.values()
        text = ", ".join(f"{name} {state or 'not installed'}" for name, state in states.items())
        remedy = "" if complete else f"For {_COMMANDS[extra]}: pip install 'unseen[{extra}]'"
        yield Finding(extra, text, complete, remedy, "absent")
    from unseen.networks import lite0

    path = lite0.installed()
    text = f"ready: {path}" if path else "not ready: extra lite0 is not installed, so --network is needed"
    yield Finding(f"default network {lite0.NETWORK}", text, path is not None, problem="absent")


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _devices() -> Iterator[Finding]:
    import faiss
    import torch

    count = torch.cuda.device_count()
    for number in range(count):
        properties = torch.cuda.get_device_properties(number)
        yield Finding(f"GPU {number}", f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB")
    if not count:
        build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU only"
        yield Finding("GPU", f"none; torch is built for {build}")
    options = faiss.get_compile_options().split()
    yield Finding("FAISS", f"{faiss.__version__}, {' '.join(options)}, {faiss.get_num_gpus()} GPUs")
    for library in threadpool_info():
        if library["internal_api"] == "openblas":
            yield _openblas(library, bool(torch.cpu.get_capabilities().get("avx512_f")))


def _openblas(library: dict[str, Any], has_avx512: bool) -> Finding:
    """The kernels of the OpenBLAS of a package. OpenBLAS chooses older ones for a processor that it does not
    recognise."""
    package = Path(library["filepath"]).parent.name.removesuffix(".libs")
    name, kernels = f"OpenBLAS of {package}", library["architecture"]
    text = f"{library['version']}, kernels for {kernels}"
    if not has_avx512 or kernels in _KERNELS_WITH_AVX512:
        return Finding(name, text)
    remedy = (
        "The processor has AVX512, which these kernels do not use. The variable OPENBLAS_CORETYPE=SkylakeX\n"
        "makes matrix products faster (docs/scale.md)."
    )
    return Finding(name, f"{text}, without AVX512", False, remedy, "slow")


def _weights(run: Plan) -> Iterator[Finding]:
    users: dict[tuple[str, bool, str | None], list[str]] = {}
    for (dataset, method), recipe in run.recipes.items():
        backbone = recipe.backbone
        if backbone.module is not None:  # a network of a user
            continue
        key = (backbone.name, backbone.pretrained, backbone.checkpoint)
        users.setdefault(key, []).append(f"{method} on {dataset}")
    for key, names in users.items():
        finding = weights_finding(*key)
        yield finding._replace(state=f"{finding.state} ({', '.join(names)})")


def weights_finding(name: str, pretrained: bool, checkpoint: str | None) -> Finding:
    """The state of the weights from which a network starts."""
    from unseen.networks.backbone import require_network
    from unseen.networks.local_weights import weights_of
    from unseen.networks.weights import REMEDY, difference

    if checkpoint is not None:
        if Path(checkpoint).is_file():
            return Finding(name, checkpoint)
        return Finding(name, f"checkpoint {checkpoint}", False, "Put the file there, or correct the path.")
    if not pretrained:
        return Finding(name, "starts from random weights")
    try:
        require_network(name)
        weights = weights_of(name)
    except ValueError as error:
        return Finding(name, str(error), False, "Choose another network, or set pretrained: false.")
    if weights.path is not None:
        problem = difference(weights.path)
        return Finding(name, problem or str(weights.path), not problem, REMEDY if problem else "")
    remedy = "The first training downloads it. Without a connection, set backbone.checkpoint to a copy."
    return Finding(name, f"not on this machine: {weights.file}", False, remedy)


def _outputs() -> Iterator[Finding]:
    from unseen.cli.clean import mebibytes
    from unseen.cli.verify import outputs

    for output in outputs(Path.cwd()):
        state = f"{output.files} files, {mebibytes(output.size)}"
        if output.repaired:
            state += f"; damaged in DVC's cache, replaced there: {_listed(output.repaired)}"
        if not output.problems:
            yield Finding(output.path, state, not output.repaired, problem="REPAIRED")
            continue
        differing = _listed([f"{path} {problem}" for path, problem in output.problems.items()])
        path = shlex.quote(output.path)
        remedies = [f"compute it again: dvc repro -f -s {shlex.quote(output.stage)}"]
        if output.source == "cache":
            remedies.insert(0, f"restore it from DVC's cache: rm -r {path} && dvc checkout {path}")
        elif output.source == "git":
            remedies.insert(0, f"restore it from git: git checkout -- {path}")
        remedy = "\nor ".join(remedies)
        yield Finding(output.path, f"{state}: {differing}", False, remedy[0].upper() + remedy[1:], "DIFFERS")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return "; ".join(names[:_LISTED]) + more


def _data_sets(run: Plan) -> Iterator[Finding]:
    for dataset, (source, _) in run.ingest.items():
        try:
            require_files(source, dataset)
        except UserError as error:
            yield Finding(dataset, error.what, False, error.remedy)
        else:
            yield Finding(dataset, getattr(source, "path", "") or "built in")
