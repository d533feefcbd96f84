"""The command line: each option is an argument of a function of the package."""
