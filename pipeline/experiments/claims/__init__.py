"""Claims of the four papers as paired comparisons with a verdict on each: of heads on a frozen network, and
of whole networks that are trained from scratch.

claims.yaml    the claims: two arms (recipes) and a metric each
claim.py       their form
arm.py         trains and evaluates one arm on one network, split and seed; keeps a record
run.py         the records of claims -> results
built_in.py    whole networks on generated images: trains and evaluates the arms -> results
built_in.yaml  the images, the lengths, and the claims that cannot be put to this setting
verdict.py     confirmed, refuted or open
results.json, built_in.json   the committed results, from which document.py writes docs/claims.md
"""
