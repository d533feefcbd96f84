"""Writes docs/weights.md from weights.yaml: `python -m tools.docs.weights > docs/weights.md`."""

import sys

from unseen.networks.weights import PublishedWeights, published_weights

_HEAD = """# Pretrained weights

The weights from which the recipes and the rows of the papers start, by the name in `backbone.name`. `python
-m tools.docs.weights` writes this page from `pipeline/recipes/weights.yaml`.

A name of timm contains the tag of its weights; without a tag timm chooses its default, which changes between
versions. `googlenet`, `bn_inception`, `mit_b1` and `mit_b2` have one file each. Top-1 is percent on the
validation images of ImageNet-1k, as printed by the source in the next column. Column SHA-256 has the
published first digits. A file with one of these names is compared with them when it is loaded, also as
`backbone.checkpoint`. The hub publishes a hash of each of its files, which the cache of the hub uses as name;
these files are compared with it.

`folder`, your own images, starts from `resnet50.tv_in1k`, and `irt` from DeiT-S;
`datasets.folder.recipe.backbone` changes it. The small sets start from random weights.

## Repositories of the Hugging Face hub

`--network` of `unseen index`, `ladder` and `measure`, and `backbone.name` of a recipe, accept the name of a
repository, `owner/name` or `hf-hub:owner/name`, in place of the name of timm:

- `timm/NAME` is `NAME` of timm.
- `facebook/dinov2-SIZE` and `facebook/dinov2-with-registers-SIZE` are `vit_SIZE_patch14_dinov2.lvd142m` and
  `vit_SIZE_patch14_reg4_dinov2.lvd142m`: the same weights as timm publishes them, with timm's preprocessing.
- Another repository needs a config.json of timm, which states architecture, arguments and preprocessing, and
  model.safetensors (`--network` only). `owner/name@revision` reads a commit or a tag.

The cache of the hub keeps the files, and they are compared with its hashes. A catalog contains the weights:
it needs neither the hub nor its cache. Pickled weights (`pytorch_model.bin`) of a repository that timm does
not name are not read, and a repository for transformers alone is refused with the names of similar networks
of timm. In a recipe, set a file as `backbone.checkpoint` and its architecture as `backbone.name`.

## Weights of recipes
"""


def markdown() -> str:
    """The page."""
    head = ["name", "publisher", "training images", "top-1", "printed by", "file", "SHA-256"]
    lines = [_line(head), _line(["---"] * len(head)), *map(_row, published_weights().values())]
    return "\n".join([_HEAD, *lines, ""])


def _row(weights: PublishedWeights) -> str:
    digits = [value or "not published" for value in weights.files.values()]
    return _line(
        [
            f"[`{weights.name}`]({weights.url})",
            weights.publisher,
            weights.data,
            f"{weights.top1:.1f}",
            weights.printed,
            "<br>".join(f"`{file}`" for file in weights.files),
            "<br>".join(digits),
        ]
    )


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.stdout.write(markdown())
