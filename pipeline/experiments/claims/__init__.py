"""Claims of the four papers as paired comparisons with a verdict on each: of heads on a frozen network, and
of pretrained whole networks that are trained.

claims.yaml     the claims: two arms (recipes) and a metric each;  claim.py: their form
run.py          heads on the photos of a folder -> results, with a verdict: confirmed, refuted, equal or open
whole_photos.yaml   rates, lengths, and the claims that cannot be put to whole networks
whole_photos.py     whole networks on photos -> results;  whole_runner.py: their records
results.json, whole_photos.json   the committed results, from which tools/docs/claims.py writes docs/claims.md
"""
