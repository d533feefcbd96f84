"""Runs independent stages of DVC in parallel, each as `dvc repro --single-item` in its own process.

It imports DVC, the libraries psutil and tqdm that DVC requires, and nothing of this project.
"""
