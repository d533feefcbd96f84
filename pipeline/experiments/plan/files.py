"""Computes the resolved file of every stage of a run from params.yaml, the published recipes and the code."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from unseen.config.command import field_origins
from unseen.config.definitions import Definitions
from unseen.config.document import Document, Params
from unseen.config.inputs import (
    MODELS,
    AnalyzeInputs,
    EnsembleInputs,
    EvaluateInputs,
    ExportInputs,
    IngestInputs,
    IntervalInputs,
    ReportInputs,
    SweepInputs,
    TrainInputs,
    Trial,
    content_of,
    digest,
    path_of,
)
from unseen.config.place import MOVED
from unseen.config.recipe_files import published
from unseen.config.resolve import (
    dataset_settings,
    ensemble_settings,
    evaluate_settings,
    settings,
    sweep_settings,
    sweep_space,
)
from unseen.config.stages import (
    EnsembleBlock,
    EnsembleSettings,
    ExportSettings,
    ReportSettings,
    RunSettings,
    SweepSettings,
    TrainSettings,
)
from unseen.config.study_row import is_small
from unseen.data.ingest.settings import IngestSettings, OwnSource, PartsSource, Source
from unseen.evaluation.settings import AnalyzeSettings, EvaluateBlock, EvaluateSettings, Reduce
from unseen.experiments.catalogue import definitions
from unseen.experiments.folds.members import fold, require_members
from unseen.experiments.plan.checks import (
    require_checkpoint,
    require_classes,
    require_distinct_cells,
    require_equal_stopping,
    require_files,
    require_networks,
    require_schedule,
    require_statistics,
)
from unseen.experiments.plan.facts import Facts
from unseen.experiments.plan.modules import modules_of, position_modules_of
from unseen.experiments.plan.sizes import (
    require_batches,
    require_evaluable,
    require_folds,
    require_reducible,
    size_of,
)
from unseen.experiments.plan.trainings import Training, located, of_folds, of_trials
from unseen.experiments.run_studies import studies_of_run
from unseen.experiments.sweep.proposals import require_optuna
from unseen.experiments.sweep.space import Values, corners, draw, trial_recipes
from unseen.methods.settings import Recipe
from unseen.runtime.code import Code
from unseen.runtime.digest import sha256_of
from unseen.runtime.errors import UserError
from unseen.runtime.names import say
from unseen.runtime.settings import Strict
from unseen.training.job import possible_worlds

_BLOCKS = ("run", *MODELS, "methods", "datasets", "weights")  # each stage has a block with its name


@dataclass(frozen=True)
class Plan:
    """A run: everything that params.yaml sets, validated."""

    definitions: Definitions
    axes: RunSettings
    machine: TrainSettings
    ensemble: EnsembleBlock
    export: ExportSettings
    evaluate: EvaluateBlock
    analyze: AnalyzeSettings
    report: ReportSettings
    ingest: dict[str, tuple[Source, IngestSettings]] = field(default_factory=dict)
    recipes: dict[tuple[str, str], Recipe] = field(default_factory=dict)
    sweeps: dict[str, SweepSettings] = field(default_factory=dict)
    _trials: dict[tuple[str, str], list[tuple[Values, Recipe]]] = field(default_factory=dict)

    def evaluation(self, dataset: str) -> EvaluateSettings:
        """Block `evaluate` for a data set."""
        return evaluate_settings(self.definitions, self.evaluate, dataset)

    def ensembles(self, dataset: str) -> EnsembleSettings:
        """Block `ensemble` for a data set."""
        return ensemble_settings(self.definitions, self.ensemble, dataset)

    def swept(self) -> list[tuple[str, str]]:
        """(data set, method) of every sweep of the run."""
        return [
            (dataset, method)
            for dataset, method in product(self.axes.datasets, self.axes.sweeps)
            if self.sweeps[method].datasets is None or dataset in (self.sweeps[method].datasets or ())
        ]

    def trials(self, dataset: str, method: str) -> list[tuple[Values, Recipe]]:
        """Values and recipe of every trial of a sweep; with searcher optuna, of the corners of its space.
        Raises UserError for an invalid value."""
        if (dataset, method) not in self._trials:
            sweep = self.sweeps[method]
            draws = corners(sweep.space) if sweep.searcher else draw(sweep)
            recipes = trial_recipes(self.definitions, dataset, method, sweep, draws)
            self._trials[dataset, method] = list(zip(draws, recipes, strict=True))
        return self._trials[dataset, method]


def plan(params: Params) -> Plan:
    """The validated run of params.yaml. Raises UserError for the first mistake, with file, line and key.
    Apart from the published recipes and studies/ it reads only params.yaml."""
    known = definitions(params)
    for block in params.names():
        if block not in _BLOCKS:
            raise UserError(
                f"{params.label}:{params.line(block)}: {block} is not a setting.",
                MOVED.get(block, f"Known here: {', '.join(_BLOCKS)}."),
            )
    run = Plan(
        definitions=known,
        axes=settings(params, "run", RunSettings),
        machine=settings(params, "train", TrainSettings),
        ensemble=settings(params, "ensemble", EnsembleBlock),
        export=settings(params, "export", ExportSettings),
        evaluate=settings(params, "evaluate", EvaluateBlock),
        analyze=settings(params, "analyze", AnalyzeSettings),
        report=settings(params, "report", ReportSettings),
    )
    if run.report.control not in (None, *run.axes.methods):
        raise UserError(
            f"{params.label}:{params.line('report.control')}: report.control: {run.report.control} is not in "
            "run.methods.",
            f"Name one of {', '.join(run.axes.methods)}, or leave it empty.",
        )
    for group in ("methods", "sweep", "datasets"):
        for name in params.names(group):
            known.require_known(group, name)
    methods = tuple(dict.fromkeys((*run.axes.methods, *run.axes.sweeps, *run.axes.ensembles)))
    require_distinct_cells(run.axes.datasets, methods)
    for dataset in run.axes.datasets:
        run.ingest[dataset] = dataset_settings(known, dataset)
        for method in dict.fromkeys((*methods, *params.names("methods"))):
            recipe = known.layers(dataset, method).recipe()
            if method in methods:
                run.recipes[dataset, method] = recipe
    for method in dict.fromkeys((*run.axes.sweeps, *params.names("sweep"))):
        run.sweeps[method] = sweep_settings(known, method)
    return run


def check(run: Plan, facts: Facts | None = None) -> None:
    """Raises UserError for problems of files, checkpoints, workers, networks and classes that would stop a
    later stage of the run. `facts`: those that are known; default: none."""
    for dataset, (source, _) in run.ingest.items():
        require_files(source, run.definitions.dataset(dataset).like)
    for dataset, method in product(run.axes.datasets, run.axes.ensembles):
        recipe = run.recipes[dataset, method]
        with field_origins(run.definitions, dataset, method):
            require_members(recipe, dataset, method)
    for _, method in run.swept():
        if run.sweeps[method].searcher is not None:
            require_optuna(sweep_space(run.definitions, method))
    for dataset in run.axes.datasets:
        swept = {method: run.recipes[dataset, method] for method in run.axes.sweeps}
        require_equal_stopping(run.definitions, dataset, swept)
    every = trainings(run)
    for training in every:
        with located(run.definitions, training):
            require_checkpoint(training.recipe)
            require_schedule(run.definitions, training)
            if not training.is_trial:  # a trial trains on one worker
                possible_worlds(training.recipe, run.machine)
    sizes = {dataset: size_of(source) for dataset, (source, _) in run.ingest.items()}
    for dataset, size in sizes.items():
        if size is not None and run.axes.ensembles:
            require_folds(run.definitions.params, run.ensembles(dataset), dataset, size)
    dimensions = require_networks(run.definitions, every, run.machine, facts or Facts())
    for training in every:
        with located(run.definitions, training):
            require_statistics(training.recipe)
    for dataset, method in product(run.axes.datasets, run.axes.methods):
        for document, key, reduce in _reductions(run, dataset, method):
            cell = dataset, method
            require_reducible(document, key, reduce, cell, sizes[dataset], dimensions[cell])
    for dataset, size in sizes.items():
        if size is None:
            continue
        of_dataset = [training for training in every if training.dataset == dataset]
        if size.train_labels is not None:
            require_classes(run.definitions, size.train_labels, of_dataset)
        require_batches(run.definitions, size, of_dataset)
        dims = {method: dimensions[dataset, method] for method in run.axes.methods}
        require_evaluable(run.definitions.params, run.evaluation(dataset), dataset, size, dims)


def trainings(run: Plan) -> list[Training]:
    """Every training of the run: those of its methods, then of its sweeps, then of its ensembles."""
    every = [
        Training(dataset, method, run.recipes[dataset, method], run.axes.seeds)
        for dataset, method in product(run.axes.datasets, run.axes.methods)
    ]
    for dataset, method in run.swept():
        trials = run.trials(dataset, method)
        every += of_trials(run.definitions, dataset, method, run.sweeps[method], trials)
    for dataset, method in product(run.axes.datasets, run.axes.ensembles):
        layers = run.definitions.layers(dataset, method)
        every += of_folds(run.definitions.params, dataset, method, layers, run.ensembles(dataset))
    return every


def is_of_fold(training: Training) -> bool:
    """Whether a training is that of a fold of an ensemble."""
    return training.recipe.training.fold is not None and bool(training.place) and not training.is_trial


def count(run: Plan, training: Training) -> int:
    """How many trainings: one a seed. Those of a fold name one seed, because all have the same classes."""
    return len(run.ensembles(training.dataset).seeds) if is_of_fold(training) else len(training.seeds)


def files(run: Plan, code: Code, facts: Facts | None = None) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Path (relative to the root of the project) and content of every resolved file of the run."""
    facts = facts or Facts()
    known = run.definitions

    sha256 = cache(sha256_of)

    def file(
        content: Strict,
        stage: str,
        *cell: str | int,
        modules: Iterable[str] = (),
        recipes: Iterable[Recipe] = (),
    ) -> tuple[Path, dict[str, Any]]:
        starts = (recipe.backbone.checkpoint for recipe in recipes)
        weights = {path: sha256(Path(path)) for path in starts if path is not None}
        digests = code.closure([f"unseen.stages.{stage}", *modules])
        return path_of(stage, *cell), content_of(content, digests, weights)

    for dataset, (source, ingest) in run.ingest.items():
        yield file(IngestInputs(source=source, ingest=ingest), "ingest", dataset, modules=[source.module])
    for dataset, method in product(run.axes.datasets, dict.fromkeys(run.axes.methods)):
        recipe = run.recipes[dataset, method]
        parts = modules_of(recipe)
        yield file(TrainInputs(recipe=recipe), "train", dataset, method, modules=parts, recipes=[recipe])
        export = ExportInputs(batch_size=run.export.batch_size, scales=run.export.scales)
        yield file(export, "export", dataset, method, modules=[*parts, *position_modules_of(recipe)])
        evaluate, analyze = with_reductions(run, dataset, method)
        metrics = {part.module.partition(":")[0] for part in evaluate.metrics.values()}
        yield file(EvaluateInputs(evaluate=evaluate), "evaluate", dataset, method, modules=metrics)
        source, _ = run.ingest[dataset]
        generator = source if isinstance(source, PartsSource) else None
        intervals = IntervalInputs(confidence=evaluate.confidence, seed=evaluate.seed)
        analysis = AnalyzeInputs(analyze=analyze, intervals=intervals, parts=generator)
        yield file(analysis, "analyze", dataset, method)
    for dataset, method in product(run.axes.datasets, dict.fromkeys(run.axes.sweeps)):
        inputs = _sweep(run, dataset, method, code)
        trials = [trial.recipe for trial in inputs.trials]
        trial_parts = {module for recipe in trials for module in modules_of(recipe)}
        yield file(inputs, "sweep", dataset, method, modules=trial_parts, recipes=trials)
    for dataset, method in product(run.axes.datasets, dict.fromkeys(run.axes.ensembles)):
        protocol, layers = run.ensembles(dataset), run.definitions.layers(dataset, method)
        parts = modules_of(run.recipes[dataset, method])
        for model in protocol.folds:
            of_fold = fold(layers, model, len(protocol.folds)).recipe()
            cell = dataset, method, model
            yield file(TrainInputs(recipe=of_fold), "train_fold", *cell, modules=parts, recipes=[of_fold])
            export = ExportInputs(batch_size=run.export.batch_size, scales=(1.0,))
            yield file(export, "export_fold", dataset, method, model, modules=parts)
        ensemble = EnsembleInputs(
            folds=len(protocol.folds), seeds=protocol.seeds, recall_at=protocol.recall_at
        )
        yield file(ensemble, "ensemble", dataset, method)
    paper = {method: known.lineage(method)[0] for method in run.axes.methods if method not in known.rows}
    like = {method: method for method in run.axes.methods}
    like |= {method: first for method, first in paper.items() if first in published("methods")}
    report = ReportInputs(
        run=run.axes,
        report=run.report,
        sweeps=tuple(run.swept()),
        like=like,
        studies=studies_of_run(run.definitions, run.axes.methods),
        costs={
            dataset: {method: facts.cost(run.recipes[dataset, method]) for method in run.axes.methods}
            for dataset in run.axes.datasets
        },
        own_photos=tuple(name for name, (source, _) in run.ingest.items() if isinstance(source, OwnSource)),
    )
    yield file(report, "report", modules=[section.module for section in run.report.sections.values()])


def with_reductions(run: Plan, dataset: str, method: str) -> tuple[EvaluateSettings, AnalyzeSettings]:
    """Blocks `evaluate` and `analyze` with the reductions that a row of a study defines. Embeddings of a
    small set are not reduced: they have fewer dimensions than those of the papers."""
    evaluate, analyze = run.evaluation(dataset), run.analyze
    row = run.definitions.rows.get(method)
    if row is None or is_small(run.definitions.dataset(dataset).kind):
        return evaluate, analyze
    if row.reduce is not None:
        evaluate = evaluate.model_copy(update={"reduce": row.reduce})
    if row.analyze_reduce is not None:
        analyze = analyze.model_copy(update={"reduce": row.analyze_reduce})
    return evaluate, analyze


def _reductions(run: Plan, dataset: str, method: str) -> Iterator[tuple[Document, str, Reduce]]:
    """The reductions of `with_reductions`, each with the document and the key that set it."""
    row = run.definitions.rows.get(method)
    evaluate, analyze = with_reductions(run, dataset, method)
    for block, key, settings_of_row, settings_of_run in (
        ("evaluate", "reduce", evaluate, run.evaluate),
        ("analyze", "analyze_reduce", analyze, run.analyze),
    ):
        reduce = settings_of_row.reduce
        if reduce is None:
            continue
        if row is None or reduce == settings_of_run.reduce:
            yield run.definitions.params, f"{block}.reduce", reduce
        else:
            yield row.document, f"{row.study}.{key}", reduce


def _sweep(run: Plan, dataset: str, method: str, code: Code) -> SweepInputs:
    sweep = run.sweeps[method]
    trials: tuple[Trial, ...] = ()
    if (dataset, method) in run.swept():
        trials = tuple(Trial(values=values, recipe=recipe) for values, recipe in run.trials(dataset, method))
    else:
        say(
            f"note: sweep.{method}.datasets does not contain {dataset}, so it is not swept. To sweep it: -S "
            f"'++sweep.{method}.datasets=[{dataset}]'"
        )
    parts = {module for trial in trials for module in modules_of(trial.recipe)}
    return SweepInputs(
        space=sweep.space,
        seed=sweep.seed,
        seeds=sweep.seeds or (sweep.seed,),
        iterations=sweep.iterations or run.recipes[dataset, method].training.iterations,
        scheduler=sweep.scheduler,
        grace=sweep.grace,
        trials=trials,
        proposed=None if sweep.searcher is None else sweep.count,
        training_code=digest(code.closure(["unseen.training.loop", *sorted(parts)])),
    )
