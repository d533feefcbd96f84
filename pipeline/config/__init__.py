"""The settings: frozen models in which an unknown key is an error, and their resolution from published
recipes and params.yaml."""

from pipeline.config.dataset import FolderSource, IngestSettings, PartsSource, Source
from pipeline.config.document import Params
from pipeline.config.methods import (
    BaselineRecipe,
    CrtRecipe,
    GspRecipe,
    IrtRecipe,
    MultiheadRecipe,
    Recipe,
    parse_recipe,
)
from pipeline.config.resolve import (
    concurrent_trials,
    dataset_settings,
    ensemble_settings,
    evaluate_settings,
    resolve,
    settings,
    sweep_settings,
    sweep_space,
)
from pipeline.config.stages import (
    AnalyzeSettings,
    EnsembleBlock,
    EnsembleSettings,
    EvaluateBlock,
    EvaluateSettings,
    ExportSettings,
    ReportSettings,
    RunSettings,
    SweepSettings,
    TrainSettings,
)

__all__ = [
    "AnalyzeSettings",
    "BaselineRecipe",
    "CrtRecipe",
    "EnsembleBlock",
    "EnsembleSettings",
    "EvaluateBlock",
    "EvaluateSettings",
    "ExportSettings",
    "FolderSource",
    "GspRecipe",
    "IngestSettings",
    "IrtRecipe",
    "MultiheadRecipe",
    "Params",
    "PartsSource",
    "Recipe",
    "ReportSettings",
    "RunSettings",
    "Source",
    "SweepSettings",
    "TrainSettings",
    "concurrent_trials",
    "dataset_settings",
    "ensemble_settings",
    "evaluate_settings",
    "parse_recipe",
    "resolve",
    "settings",
    "sweep_settings",
    "sweep_space",
]
