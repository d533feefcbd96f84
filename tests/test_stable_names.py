"""The names for authors of parts: their packages, their arguments, and their import at first use."""

import inspect
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from unseen.runtime.code import code_of
from unseen.runtime.stage import PACKAGE

# Arguments by name; None: a type. A change here breaks parts of users: it needs a line in CHANGELOG.md.
NAMES: dict[str, str | None] = {
    "data.Collection": "location pictures read facts extras by_class",
    "data.Draw": "positions keys",
    "data.Picture": "source class_name split is_query is_gallery group box",
    "data.Published": "title page layouts advice",
    "data.PublishedFile": "name size md5 sha256 url unpacked folder",
    "data.Tree": "path published scratch",
    "data.drawn": "positions seed step",
    "evaluation.PerQuery": "row_id label relevant recall r_precision ap_at_r ap first recall_at neighbours "
    "similarities own",
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
    "methods.MetricLoss.forward": "self embeddings labels samples references",
    "methods.Observed": "references has_prototypes",
    "methods.Outputs": "embedding attributes",
    "methods.OutsideRecipe": "backbone input batch optimizer schedule training method pooling dim projection "
    "loss memory",
    "methods.PoolingHead": "settings source dim projection size",
    "methods.Recipe": None,
    "methods.backbone": "settings",
    "methods.unit": "vectors",
    "networks.Backbone": "name pretrained checkpoint arguments stages batch_norm batch_norm_momentum module",
    "networks.Features": "maps cls",
    "networks.Published": "file page fetch",
    "networks.Staged": "args kwargs",
    "networks.Staged.block": "self name x",
    "networks.Staged.prepare": "self images",
    "poolings.AveragePooling": "name",
    "poolings.Pooling": None,
    "poolings.positions_of": "features",
    "report.DataSet": "report_data name anchor gallery",
    "report.counted": "count noun",
    "report.interval": "value",
    "report.number": "value digits",
    "report.percent": "share",
    "runtime.Count": None,
    "runtime.NonNegative": None,
    "runtime.Positive": None,
    "runtime.Share": None,
    "runtime.Strict": "",
    "runtime.UserError": "what remedy",
    "runtime.trusted": "packages",
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
        assert " ".join(inspect.signature(value).parameters) == NAMES[name]


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
