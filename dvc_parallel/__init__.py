"""Runs independent stages of the graph in parallel, each as `dvc repro --single-item` in its own process."""
