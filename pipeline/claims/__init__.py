"""Claims of the four papers as paired comparisons of heads on a frozen network, with a verdict on each.

claims.yaml    the claims: two arms (recipes) and a metric each
claim.py       their form
arm.py         trains and evaluates one arm on one network, split and seed; keeps a record
run.py         the records of claims -> results
verdict.py     confirmed, refuted or open
results.json   the committed results, from which document.py writes docs/claims.md
"""
