"""What a damaged file of a kind of the campaign may change without notice, with the reason. The values of all
other kinds are compared: a damaged file is refused, or gives the values of a whole one."""

_OTHERS = "a file of others, which records no digest"
MAY_CHANGE = {
    "CSVs": _OTHERS,
    "archives": _OTHERS,
    "checkpoints .pth": "a file of others; `backbone.checkpoint` records its sha256 in recipe.json",
    "checkpoints .safetensors": "a file of others; `backbone.checkpoint` records its sha256 in recipe.json",
    "images": "a file of others; in shards and catalogs its sha256 is compared",
    "params overlays": "a text that a user edits",
    "pickled ground truth": _OTHERS,
    "tables of the report": "compared as the kind `results of an evaluation`",
    "uploads to the service": _OTHERS,
    "vectors .arrow": _OTHERS,
    "vectors .npy": _OTHERS,
    "vectors .parquet": _OTHERS,
}
