"""The output of DVC."""


def stages_run(output: str) -> set[str]:
    """The names of the stages that `dvc repro` ran."""
    return {line.split("'")[1] for line in output.splitlines() if line.startswith("Running stage '")}


def chain(data_set: str, *methods: str) -> set[str]:
    """The stages of these methods on a data set, with seed 0."""
    stages = ("train", "export", "evaluate", "analyze")
    return {f"{stage}@{data_set}-{method}-0" for stage in stages for method in methods}


def first_run(data_set: str, *methods: str) -> set[str]:
    """The stages of the first run of these methods, with a sweep of gsp."""
    ends = {"resolve", f"ingest@{data_set}", f"sweep@{data_set}-gsp", "report"}
    return ends | chain(data_set, *methods)
