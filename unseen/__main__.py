"""`python -m unseen` is the command `unseen`."""

from unseen.cli import main

main()
