"""Runs independent stages of DVC in parallel from one process, which reads the graph once.

It imports DVC, the libraries psutil and tqdm that DVC requires, and nothing of this project.
"""
