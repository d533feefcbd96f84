"""Dumps what a change of structure must leave equal, and compares two dumps.

    python tools/equality.py dump FILE.json [--only recipes,graph,...]
    python tools/equality.py compare BEFORE.json AFTER.json

recipes   every resolved recipe, the text of `unseen recipe`, the texts of errors about recipes
splits    classes of training, of folds, of the ladder and of ingest
help      the text of every `unseen ... --help`
docs      the pages that are generated from the code
graph     files of the default graph, by `dvc repro` in this clone
ladder    `unseen ladder` on drawn photos
claims    `unseen claims` on drawn photos
study     `unseen study --mini` and MLRC folds, in a copy of the working tree
catalog   `unseen index` and `unseen find` on drawn photos

A dump has one value for each item: a number or word of a JSON result, or the SHA-256 of a text or file.
Values of the keys TIMES, paths of temporary folders, and commits and dates in the report are left out.
`dump` replaces the named parts of a file that exists. Exit status of `compare`: 1 if an item differs.
"""

import argparse
import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
Items = Iterator[tuple[str, Any]]  # name and value
TIMES = ("cpu_seconds", "seconds", "log_backward_seconds", "indexed_at", "stamps")
NOT_EQUAL = ("resolved", "logs", "fold_logs")  # outs of the graph with digests of code, times and hosts
REVISION = re.compile(rb"\b[0-9a-f]{40}\b(, with changes that are not committed)?|\d{4}-\d\d-\d\dT[\d:+Z-]+")
FOLDS = 4
WRONG = (  # params.yaml, data set, method
    ("methods: {a: {like: gps}}", "parts", "a"),
    ("methods: {gsp: {pooling: {epsilom: 1.0}}}", "parts", "gsp"),
    ("methods: {gsp: {pooling: {epsilon: -1.0}}}", "parts", "gsp"),
    ("methods: {ms: {pooling: {name: maximum}}}", "parts", "ms"),
    ("methods: {ms: {training: 3}}", "parts", "ms"),
    ("methods: {ms: {loss: {name: triplet, beta: 2.0}}}", "cub", "ms"),
    ("datasets: {parts: {recipe: {batch: {classes: many}}}}", "parts", "crt"),
    ("datasets: {parts: {methods: {crt: {embeding: {dim: 8}}}}}", "parts", "crt"),
    ("datasets: {mine: {source: {kind: folders}}}", "mine", "ms"),
    ("methods: {a: {method: crt, branches: two}}", "parts", "a"),
    ("methods: {a: {like: b}, b: {like: a}}", "parts", "a"),
    ("", "nothing", "ms"),
    ("", "parts", "nothing"),
)


def digest(value: Any) -> str:
    """SHA-256 of bytes, of a text, or of JSON in one form."""
    text = value if isinstance(value, bytes | str) else json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


def leaves(value: Any, name: str) -> Items:
    """The numbers and words of a JSON value, without those of TIMES."""
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if key not in TIMES:
                yield from leaves(item, f"{name}/{key}")
    else:
        yield name, value


def files(folder: Path, name: str, removed: str = "") -> Items:
    """SHA-256 of every file below a folder. `removed`: a path in texts."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes().replace(removed.encode(), b"") if removed else path.read_bytes()
        if folder.name == "report" and path.name == "index.html":
            content = REVISION.sub(b"", content)
        yield f"{name}/{path.relative_to(folder)}", digest(content)


def run(*arguments: object, cwd: Path = ROOT) -> str:
    """The standard output of `python ...`, which must succeed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "COLUMNS": "100", "PATH": path}
    env |= {"PYTHONPATH": str(cwd if (cwd / "dvc.yaml").is_file() else ROOT)}
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, env=env, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}\n{done.stdout}")
    return done.stdout


def draw_photos(folder: Path, classes: int = 24, each: int = 6) -> Path:
    """Pictures of one colour pattern for each class, with so much noise that classes are similar."""
    import numpy as np
    from PIL import Image

    for label in range(classes):
        random = np.random.default_rng(label)
        blocks = random.integers(60, 196, (5, 6, 3))
        for number in range(each):
            noisy = np.clip(blocks + random.integers(-100, 101, blocks.shape), 0, 255).astype(np.uint8)
            path = folder / f"product {label:02d}" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.kron(noisy, np.ones((16, 16, 1), np.uint8))).save(path)
            os.utime(path, (1e9, 1e9))
    return folder


def recipe_or_error(make: Callable[..., Any], *arguments: Any) -> str:
    """The digest of a recipe or of a list of recipes; the text of the error of a refused one."""
    from unseen.runtime.errors import UserError

    try:
        made = make(*arguments)
    except UserError as error:
        return f"{error.what} {error.remedy}"
    return digest([each.model_dump(mode="json") for each in (made if isinstance(made, list) else [made])])


def variants(dataset: str, method: str) -> str:
    """A params.yaml with a variant of a method, a variant of it, changes for a data set, and weights."""
    recipe = {"batch": {"images_per_class": 2}, "backbone": {"name": "resnet50"}}
    like = {"like": method, "training": {"iterations": 7}}
    twice = {"like": "like", "optimizer": {"learning_rate": 0.5}}
    changes = {"recipe": recipe, "methods": {"like": {"schedule": {"warmup": 3}}}}
    content = {"methods": {"like": like, "twice": twice}, "datasets": {dataset: changes}}
    return json.dumps({**content, "weights": {"resnet50": "file.safetensors"}})


def recipes() -> Items:
    from unseen.cli.recipe import recipe as as_text
    from unseen.config.definitions import Definitions
    from unseen.config.document import Params
    from unseen.config.recipe_files import published
    from unseen.config.resolve import sweep_settings
    from unseen.experiments.catalogue import definitions, entries, studies
    from unseen.experiments.claims.claim import claims as all_claims
    from unseen.experiments.folds.members import fold
    from unseen.experiments.ladder.head import layers_of_head
    from unseen.experiments.sweep.space import draw, trial_recipes
    from unseen.frozen.head import head
    from unseen.frozen.maps import trunk
    from unseen.frozen.network import default_network

    sets, methods = published("datasets"), published("methods")
    with_trainings = [item for item in studies().values() if item.study.has_rows]
    rows = {entry.method: entry for item in with_trainings for entry in entries(item)}
    known, of_user = definitions(Params(text=""), *rows), Definitions(Params())

    def made(of: Definitions, dataset: str, method: str) -> Any:
        return of.layers(dataset, method).recipe()

    def trials(dataset: str, method: str) -> Any:
        space = sweep_settings(of_user, method)
        return trial_recipes(of_user, dataset, method, space, draw(space)[:8])

    for dataset in sets:
        for method in (*methods, *rows):
            yield f"run/{dataset}/{method}", recipe_or_error(made, known, dataset, method)
        for method in methods:
            for model in range(1, FOLDS + 1):
                value = recipe_or_error(
                    lambda d, m, k: fold(known.layers(d, m), k, FOLDS).recipe(), dataset, method, model
                )
                yield f"fold/{dataset}/{method}/{model}", value
            yield f"trials/{dataset}/{method}", recipe_or_error(trials, dataset, method)
            changed = Params(text=variants(dataset, method))
            for variant in (method, "like", "twice"):
                value = recipe_or_error(made, Definitions(changed), dataset, variant)
                yield f"variant/{dataset}/{method}/{variant}", value
            if dataset in ("parts", "cub"):
                yield f"text/{dataset}/{method}", digest(as_text(changed, dataset, "twice"))
    # Recipes contain this path.
    frozen = trunk(default_network(), Path(tempfile.gettempdir(), "unseen-equality"), (-2, -1))
    of_claims = all_claims()

    def of_head(method: str, changes: dict[str, Any], on: Any = None) -> Any:
        return head(method, on, changes).recipe()

    for arm in of_claims.arms:
        yield f"head/{arm}", recipe_or_error(of_head, *of_claims.arm(arm))
        yield f"on photos/{arm}", recipe_or_error(of_head, *of_claims.arm(arm), frozen)
    for method in methods:
        yield f"rung/{method}", recipe_or_error(lambda name: layers_of_head(name, frozen, 5).recipe(), method)
    for text, dataset, method in WRONG:
        value = recipe_or_error(
            lambda t, d, m: made(Definitions(Params(text=t)), d, m), text, dataset, method
        )
        yield f"error/{text} {dataset} {method}", value


def splits() -> Items:
    import numpy as np

    from unseen.data.class_split import split_classes
    from unseen.data.settings import Fold
    from unseen.data.splits import grouped, held_out, validation_classes

    folds = [(0.2, 0, Fold(model=model, folds=FOLDS)) for model in range(1, FOLDS + 1)]
    for classes in (24, 98, 203):
        labels = np.sort(np.random.default_rng(classes).integers(0, classes, 9 * classes))
        for share, seed, fold in [(0.1, 0, None), (0.2, 0, None), (0.5, 7, None), *folds]:
            parts = asdict(split_classes(np.arange(len(labels)) + 5, labels, share, seed, fold))
            name = f"training/{classes}/{share}/{seed}/{fold.model if fold else None}"
            yield name, digest({key: np.asarray(part).tolist() for key, part in parts.items()})
        for count in (2, 4, 5):
            blocks = [list(validation_classes(model, classes, count)) for model in range(1, count + 1)]
            yield f"folds/{classes}/{count}", digest(blocks)
        names = [f"class {number}" for number in range(classes)]
        groups = {name: str(number // 3) for number, name in enumerate(names)}
        for share, seed in ((0.5, 0), (0.3, 1)):
            for order in ("random", "name"):
                chosen = sorted(held_out(names, share, order, seed))
                yield f"ingest/{classes}/{order}/{share}/{seed}", digest(chosen)
            for group_of in (None, groups):
                test, of_folds = grouped(names, share, FOLDS, seed, group_of)
                name = f"ladder/{classes}/{share}/{seed}/{bool(group_of)}"
                yield name, digest([sorted(test), *map(sorted, of_folds)])


def help() -> Items:
    listed = run("-m", "unseen", "--help").partition("Commands:")[2]
    for command in ([], *([name] for name in re.findall(r"^  (\w[\w-]*)  ", listed, re.M))):
        yield " ".join(["unseen", *command]), digest(run("-m", "unseen", *command, "--help"))


def docs() -> Items:
    """The generated pages of the Makefile, and one that it does not write."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    modules = re.findall(r"python -m (\S+) > docs/\.page && mv docs/\.page docs/(\S+)", makefile)
    modules += [("tools.docs.claims", "claims.md")]
    for module, page in modules:
        yield page, digest(run("-m", module))


def graph() -> Items:
    run("-m", "dvc", "repro")
    yield from outs(ROOT)


def outs(root: Path) -> Items:
    """The files of all outs of dvc.yaml but NOT_EQUAL."""
    from ruamel.yaml import YAML

    stages = YAML(typ="safe").load((root / "dvc.yaml").read_text(encoding="utf-8"))["stages"].values()
    paths = [out for stage in stages for kind in ("outs", "metrics", "plots") for out in stage.get(kind, ())]
    names = {(path if isinstance(path, str) else next(iter(path))).split("/")[1] for path in paths}
    for name in sorted(names - set(NOT_EQUAL)):
        yield from files(root / "data" / name, name)


def ladder() -> Items:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        draw_photos(base / "photos")
        run("-m", "unseen", "ladder", "photos", "ladder", "--sizes", "48,64", cwd=base)
        yield from leaves(json.loads((base / "ladder/ladder.json").read_text()), "ladder.json")
        yield from files(base / "ladder/model", "model", folder)


def claims() -> Items:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        draw_photos(base / "photos")
        on_photos = ["gsp-over-average-c2", "crt-decay", "--photos", "photos", "--output", "heads"]
        run("-m", "unseen", "claims", *on_photos, "--seeds", 2, cwd=base)
        for path in sorted((*base.glob("*/*.json"), *base.glob("*/records/*.json"))):
            name = str(path.relative_to(base))
            yield from leaves(json.loads(path.read_text(encoding="utf-8")), name)


def study() -> Items:
    """A study of CRT with few steps on few small images, then an MLRC ensemble of two folds, in a copy."""
    from ruamel.yaml import YAML

    yaml = YAML()

    def change(path: Path, changes: Callable[[Any], None]) -> None:
        content = yaml.load(path.read_text(encoding="utf-8"))
        changes(content)
        yaml.dump(content, path)

    def shrink(content: Any) -> None:
        content["recipe"]["input"] |= {"size": 32, "resize": 36}
        content["recipe"]["batch"] |= {"classes": 4, "images_per_class": 3}
        content["recipe"]["training"] |= {"iterations": 4, "validate_every": 4}

    def few_images(content: Any) -> None:
        source = {"train_classes": 10, "test_classes": 6, "images_per_class": 6}
        content["datasets"]["parts"] = {"source": source}

    def with_folds(content: Any) -> None:
        content["run"] |= {"methods": ["ms"], "ensembles": ["ms"]}
        content["ensemble"] |= {"folds": [1, 2], "seeds": [0]}

    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in names:
            path = ROOT / name
            if name != "dvc.lock" and not re.match("data/(metrics|history)/", name) and os.path.lexists(path):
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, copy / name, follow_symlinks=False)
        subprocess.run(["git", "init", "-q"], cwd=copy, check=True)
        change(copy / "pipeline/recipes/datasets/parts.yaml", shrink)
        change(copy / "params.yaml", few_images)
        run("-m", "unseen", "study", "crt-table-10", "--mini", cwd=copy)
        yield from ((f"study/{name}", value) for name, value in outs(copy))
        change(copy / "params.yaml", with_folds)
        run("-m", "dvc", "repro", cwd=copy)
        yield from ((f"folds/{name}", value) for name, value in outs(copy))


def catalog() -> Items:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        draw_photos(base / "photos")
        run("-m", "unseen", "index", "photos", "catalog", "--labels", "folders", "--size", 64, cwd=base)
        queries = ["photos/product 03/1.png", "photos/product 07/5.png"]
        answers = run("-m", "unseen", "find", "catalog", *queries, "--json", "--page", "found.html", cwd=base)
        yield from leaves(json.loads(answers.replace(folder, "")), "find")
        yield "found.html", digest((base / "found.html").read_text(encoding="utf-8").replace(folder, ""))
        yield from leaves(json.loads((base / "catalog/catalog.json").read_text()), "catalog.json")
        yield from (
            (name, value) for name, value in files(base / "catalog", "catalog", folder) if "json" not in name
        )


PARTS: dict[str, Callable[[], Items]] = {
    part.__name__: part for part in (recipes, splits, help, docs, graph, ladder, claims, study, catalog)
}


def cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def dump(path: Path, parts: Iterable[str]) -> None:
    """Writes the items of these parts; a file that exists keeps its other parts."""
    content = json.loads(path.read_text()) if path.is_file() else {}
    for part in parts:
        begin = cpu_seconds()
        items = list(PARTS[part]())
        content[part] = dict(items)
        if len(items) != len(content[part]):
            raise SystemExit(f"{part}: two items have one name")
        path.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")
        print(
            f"{part}: {len(content[part]):,} items, {cpu_seconds() - begin:.1f} CPU seconds", file=sys.stderr
        )


def compared(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> tuple[str, bool]:
    """A Markdown table of the parts that both dumps contain, and whether all their items are equal."""
    lines = ["| part | items | equal | differing | first of them |", "|---|---|---|---|---|"]
    same, absent = bool(before.keys() & after.keys()), object()
    for part in (part for part in before if part in after):
        names = before[part] | after[part]
        first = [name for name in names if before[part].get(name, absent) != after[part].get(name, absent)]
        same &= bool(names) and not first
        differing = ", ".join(f"`{name}`" for name in first[:4])
        lines.append(
            f"| {part} | {len(names):,} | {len(names) - len(first):,} | {len(first):,} | {differing} |"
        )
    if missing := ", ".join(sorted(before.keys() ^ after.keys())):
        lines += ["", f"In one of the dumps only: {missing}."]
    return "\n".join(lines), same


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    dumping = commands.add_parser("dump")
    dumping.add_argument("file", type=Path)
    dumping.add_argument("--only", type=lambda text: text.split(","), default=list(PARTS))
    comparing = commands.add_parser("compare")
    comparing.add_argument("files", type=Path, nargs=2)
    arguments = parser.parse_args()
    if arguments.command == "dump":
        if unknown := set(arguments.only) - set(PARTS):
            parser.error(f"unknown part {min(unknown)}; known are {', '.join(PARTS)}")
        os.chdir(ROOT)
        sys.path.insert(0, str(ROOT))
        dump(arguments.file.absolute(), arguments.only)
    else:
        table, same = compared(*(json.loads(path.read_text(encoding="utf-8")) for path in arguments.files))
        print(table)
        sys.exit(not same)


if __name__ == "__main__":
    main()
