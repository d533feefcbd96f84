"""The subcommands of `unseen`, one module per group.

Modules of the library are imported by the subcommand that needs them: `unseen --help` imports neither torch
nor FAISS.
"""
