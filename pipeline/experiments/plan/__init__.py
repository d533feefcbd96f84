"""Stage `resolve`: params.yaml, the published recipes and the code -> one file per run and stage under
data/resolved."""
