"""The scripts of the graph. Each begins with stage `resolve`'s file of its settings, data/resolved."""

if __name__ != "unseen.stages":  # a second name would make second classes of everything
    raise ImportError(f"import unseen.stages, not {__name__}: the folder is the package unseen.stages")
