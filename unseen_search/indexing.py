"""The commands `unseen index` and `unseen measure`."""

import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import pyarrow as pa

from unseen.data.ingest.sources.folder import enumerated
from unseen.evaluation import curve
from unseen.evaluation.headline import in_percent, interval_note
from unseen.evaluation.index.kinds import KINDS
from unseen.evaluation.unknown import percent
from unseen.frozen.encoded import Precision
from unseen.frozen.network import Network
from unseen.runtime.files import atomic_file
from unseen.runtime.names import printable
from unseen.runtime.text import aligned
from unseen_search.catalog.building import build
from unseen_search.catalog.catalog import Catalog
from unseen_search.catalog.duplicates import Group, duplicates
from unseen_search.catalog.files import ABOUT, CURVE
from unseen_search.catalog.measure import description, measure
from unseen_search.search import require_page


def write_catalog(
    photos: Path,
    output: Path,
    model: Path | Network | None,
    kind: str | None,
    labels: str | None,
    skip_damaged: bool,
    duplicates_html: Path | None = None,
    workers: int | None = None,
    precision: Precision | Literal["auto"] | None = None,
    remove: bool = False,
    onnx: bool | None = None,
) -> None:
    """Builds or updates a catalog and prints its size, the first names of excluded pictures, and with
    `duplicates_html` the groups of near-duplicates, which it also writes to this page. `onnx`: as of `build`;
    None: where the extra is installed. Raises UserError as
    `build` does.
    """
    if duplicates_html is not None:
        require_page(duplicates_html)
    pa.set_memory_pool(pa.system_memory_pool())  # the default one keeps 35 MiB
    setting = KINDS[kind]() if kind else None
    catalog = build(
        photos,
        output,
        model,
        skip_damaged,
        setting,
        labels,
        workers=workers,
        precision=precision,
        remove=remove,
        onnx=all(map(find_spec, ("onnxruntime", "onnxscript"))) if onnx is None else onnx,
    )
    excluded = catalog.about["left_out"]
    parts = [f"{len(catalog):,} pictures"]
    if labelled := len(catalog) - catalog.labels.count(None):
        parts.append(f"{labelled:,} with one of {len({*catalog.labels} - {None}):,} labels")
    if excluded:
        parts.append(f"{len(excluded):,} excluded")
    sys.stdout.write(f"{output}: {', '.join(parts)}\n")
    if excluded:
        reasons = enumerated([f"{name} ({reason})" for name, reason in excluded.items()])
        sys.stdout.write(f"excluded: {reasons}. {output / ABOUT} lists them under left_out.\n")
    sys.stdout.writelines(f"{line}\n" for line in _decision_lines(catalog))
    if duplicates_html is not None:
        from unseen_search.catalog.results_page import duplicates_page  # imports the templates of the report

        groups, unread = duplicates(catalog)
        with atomic_file(duplicates_html) as aside:
            aside.write_text(duplicates_page(catalog, groups), encoding="utf-8")
        sys.stdout.write("".join(f"{line}\n" for line in _duplicate_lines(groups, unread)))


def _decision_lines(catalog: Catalog) -> Iterator[str]:
    """The rule of the products, why it was chosen, and the curve."""
    decision = catalog.about["decision"]
    if decision is None:
        return
    chosen, *others = decision["rules"]
    right = f"{percent(chosen['right'])} of the photos are answered right if each is left out"
    yield f"rule of the products: {chosen['rule']}; {right}"
    for rule in others:
        yield f"  {rule['rule']}: {percent(rule['right'])} right"
    for each in decision["bounded"]:
        if each["rule"] != chosen["rule"]:
            yield f"better at a threshold for {percent(each['at_most_false'])} false matches: {each['rule']}"
    if points := [curve.of_plain(point) for point in decision["curve"]]:
        yield from curve.lines(points)
        yield f"picture of the curve: {catalog.directory / CURVE}"


def _duplicate_lines(groups: Sequence[Group], unread: Sequence[str]) -> Iterator[str]:
    count = sum(len(group.pictures) for group in groups)
    yield f"{len(groups):,} groups of near-duplicates with {count:,} pictures"
    for group in groups:
        names = ", ".join(printable(copy.path) for copy in group.pictures)
        yield f"  {names}" + ("  (different labels)" if group.contradictory else "")
    if unread:
        yield f"{len(unread):,} files are missing and could not be compared, first {printable(unread[0])}"


def measurement(photos: Path, network: Network, labels: str) -> str:
    """The accuracy of a network with each candidate of its statistics as a table, and the command with the
    best. Raises UserError as `measure` does.
    """
    results = measure(photos, network, labels)
    options = [description(result.network) for result in results]
    metrics = results[0].metrics
    lines = [
        f"{metrics['queries']:,} photos of {metrics['classes']:,} classes, {interval_note(metrics)}",
        "",
    ]
    rows = [("options", "Recall@1", "MAP@R")]
    for option, result in zip(options, results, strict=True):
        recall = f"{100 * float(result.metrics['recall_at_1']):.1f}"
        rows.append((option, recall, in_percent(result.metrics, "map_at_r")))
    lines += aligned(rows, right=(1, 2))
    weights = f" --weights {network.weights}" if network.weights else ""
    lines += ["", f"unseen index PHOTOS CATALOG --network {network.name}{weights} {options[0]}"]
    return "".join(f"{line}\n" for line in lines)
