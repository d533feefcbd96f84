"""The sections of the report page.

A section is a module and a template of the same name. `content(dataset)` returns the variables of the
template, or None: then the section is omitted. The template also gets `dataset` (pipeline/report/dataset.py).
"""
