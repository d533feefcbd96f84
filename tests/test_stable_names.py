"""The names for authors of parts: their packages, their arguments, and their import at first use."""

import inspect
import operator
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

import unseen
from unseen.runtime.code import code_of
from unseen.runtime.settings import Strict
from unseen.runtime.stage import PACKAGE

# Arguments and their defaults by name; None: a type. A change here breaks parts of users: it needs a line in
# CHANGELOG.md.
NAMES: dict[str, str | None] = {
    "data.Collection": "location pictures read facts=<factory> extras=<factory> by_class=True",
    "data.Draw": "positions keys",
    "data.Picture": "source class_name split is_query=True is_gallery=True group=None box=None",
    "data.Published": "title page layouts advice=''",
    "data.PublishedFile": "name size=None md5=None sha256=None url=None unpacked=None folder=''",
    "data.Tree": "path published scratch",
    "data.drawn": "positions seed step",
    "evaluation.PerQuery": "row_id label relevant recall r_precision ap_at_r ap first recall_at "
    "neighbours similarities own={}",
    "losses.PairLoss": "args kwargs",
    "losses.PairLoss.cost": "self pairs",
    "losses.Pairs": "anchors labels references reference_labels self_index",
    "losses.References": "vectors labels self_index is_full",
    "methods.EmbeddingMethod": "recipe classes samples",
    "methods.Method": "args kwargs",
    "methods.Method.after_step": "self",
    "methods.Method.forward": "self images",
    "methods.Method.observe": "self outputs labels",
    "methods.Method.proxies": "self",
    "methods.Method.terms": "self outputs labels samples observed",
    "methods.MetricLoss": "loss memory dim batch classes samples",
    "methods.MetricLoss.forward": "self embeddings labels samples references=None",
    "methods.Observed": "references=None has_prototypes=None",
    "methods.Outputs": "embedding attributes=None",
    "methods.OutsideRecipe": "backbone input batch optimizer schedule training method pooling dim=128 "
    "projection loss memory=None",
    "methods.PoolingHead": "settings source dim projection size",
    "methods.Recipe": None,
    "methods.backbone": "settings",
    "methods.unit": "vectors",
    "networks.Backbone": "name pretrained=False checkpoint=None arguments=None stages=(-1,) "
    "batch_norm='batch' batch_norm_momentum=None module=None",
    "networks.Features": "maps cls",
    "networks.Published": "file page fetch=None",
    "networks.Staged": "args kwargs",
    "networks.Staged.block": "self name x",
    "networks.Staged.prepare": "self images",
    "poolings.AveragePooling": "name='average'",
    "poolings.Pooling": None,
    "poolings.positions_of": "features",
    "report.DataSet": "report_data name anchor gallery",
    "report.counted": "count noun",
    "report.interval": "value",
    "report.number": "value digits=3",
    "report.percent": "share",
    "runtime.Count": None,
    "runtime.NonNegative": None,
    "runtime.Positive": None,
    "runtime.Share": None,
    "runtime.Strict": "",
    "runtime.UserError": "what remedy",
    "runtime.trusted": "packages",
}
# The names for those who write no part.
OF_UNSEEN = {
    "Catalog": "directory verify=None",
    "Catalog.answers": "self vectors k rule threshold=None",
    "Catalog.find": "self pictures k=10",
    "Catalog.identify": "self pictures k=10 threshold=None",
    "Catalog.threshold": "self at_most_false=None confidence=0.95 at_most_wrong=None unknown=None",
    "Embedder": "model precision='float32' where=None",
    "Match": "path similarity label=None",
    "Network": "name weights=None size=None statistics=None arguments=<factory> about=None",
    "Product": "label score votes",
    "Threshold": "score rule confidence at_most_false at_most_wrong false false_limit right wrong "
    "wrong_limit products photos trained labelled=True given=0 given_false=None",
    "evaluate": "embeddings labels gallery=None gallery_labels=None is_query=None is_gallery=None "
    "recall_at=(1, 2, 4, 8) normalize=False confidence=0.95 seed=0 progress=False",
    "head": "name channels settings",
    "index": "photos output model=None skip_damaged=False index=None labels=None processes=None "
    "workers=None precision=None remove=False onnx=None",
    "loss": "name classes=None dim=None samples=None attributes=None settings",
    "pooling": "name channels dim=None positions=None settings",
    "train": "images labels=None recipe='ms' loss=None output seed=0",
}
PACKAGES = sorted({name.partition(".")[0] for name in NAMES})


def found(name: str) -> Any:
    package, *attributes = name.split(".")
    value = import_module(f"unseen.{package}")
    for attribute in attributes:
        value = getattr(value, attribute)
    return value


@pytest.mark.parametrize("name", NAMES)
def test_the_arguments(name: str) -> None:
    value: Callable[..., Any] = found(name)
    if NAMES[name] is not None:
        assert arguments(value) == NAMES[name]


@pytest.mark.parametrize("name", OF_UNSEEN)
def test_the_arguments_of_unseen(name: str) -> None:
    assert arguments(operator.attrgetter(name)(unseen)) == OF_UNSEEN[name]


def arguments(function: Callable[..., Any]) -> str:
    """Defaults of settings are those of tests/config/test_defaults.py."""
    parameters = inspect.signature(function).parameters.values()
    return " ".join(
        each.name
        + ("" if each.default is each.empty or isinstance(each.default, Strict) else f"={each.default!r}")
        for each in parameters
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_the_names_of_a_package(package: str) -> None:
    """The code digest of a part finds the module of each of them."""
    listed = import_module(f"unseen.{package}").__all__
    named = {name.split(".")[1] for name in NAMES if name.startswith(f"{package}.")}
    assert sorted(listed) == sorted(named)
    assert {"absent", *listed}.isdisjoint(path.stem for path in (PACKAGE / package).iterdir())
    for name in listed:
        (module,) = code_of(PACKAGE)._sources([f"unseen.{package}.{name}"])
        origin = getattr(found(f"{package}.{name}"), "__module__", module)
        assert module == origin or not origin.startswith("unseen."), name
    with pytest.raises(ImportError, match="absent"):
        exec(f"from unseen.{package} import absent")


def test_a_name_is_imported_at_its_first_use() -> None:
    imports = "; ".join(f"import unseen.{package}" for package in PACKAGES)
    program = f"import sys; {imports}; print([name for name in ('torch', 'pydantic') if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
