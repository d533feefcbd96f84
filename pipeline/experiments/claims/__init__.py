"""Claims of the four papers as paired comparisons with a verdict on each: of heads on a frozen network, and
of whole networks that are trained from scratch.

claims.yaml     the claims: two arms (recipes) and a metric each;  claim.py: their form
photos.py       heads on the photos of a folder: the records of claims and of frozen studies
run.py          the records of claims -> results;  verdict.py: confirmed, refuted or open
built_in.yaml   generated images, lengths, and the claims that cannot be put to this setting
built_in.py     whole networks on these images -> results;  whole_runner.py: their records
results.json, built_in.json   the committed results, from which tools/docs/claims.py writes docs/claims.md
"""
