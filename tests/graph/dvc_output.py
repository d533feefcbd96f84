"""The output of DVC."""


def stages_run(output: str) -> set[str]:
    """The names of the stages that `dvc repro` ran."""
    return {line.split("'")[1] for line in output.splitlines() if line.startswith("Running stage '")}
