"""`python -m unseen` is the command `unseen`."""

from unseen.cli.main import main

main()
