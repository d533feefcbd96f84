"""Writes docs/library.md from the code: `python -m tools.docs.library > docs/library.md`.

Every published recipe, loss, pooling and network of the project has a row. Its text is the first paragraph of
a docstring, or the first sentence of a recipe file.
"""

import inspect
import re
import sys
from importlib import import_module
from itertools import starmap, takewhile
from typing import Any, get_args

import torch
from pydantic_core import PydanticUndefined

from unseen.config.command import literal
from unseen.config.definitions import Definitions
from unseen.config.document import Params
from unseen.config.recipe_files import ROOT, published
from unseen.losses.settings import TERMS, CrossBatchMemory, HybridLoss, Loss
from unseen.methods.by_name import LOSSES, MemoryLoss, sizes_of
from unseen.methods.metric_loss import Objective
from unseen.methods.modules import backbone, load
from unseen.methods.settings import CrtRecipe, Recipe
from unseen.networks.networks import PROJECT_NETWORKS
from unseen.poolings.settings import AttributePooling, Pooling
from unseen.runtime.settings import Strict

_PAGE = """# The library

A recipe names its parts. Any loss works with any pooling, and any pooling with any network, with a few
exceptions that stage `resolve` refuses before training starts. `python -m tools.docs.library` writes
this page from the code. [Rows of the papers' tables](papers.md) shows how to combine the parts;
[deviations](deviations.md) lists where a definition differs from released code; [extending](extending.md)
describes how to add a part.

## Recipes: `run.methods`

The setting for CUB. `unseen recipe DATASET METHOD` prints all values with the file and line that sets each.

{recipes}

## Losses: `loss.name`

The settings are fields of the part, with their published defaults: `-S '++methods.ms.loss.threshold=0.6'`.

{losses}

Some recipes have further terms, each with its own field: `memory`, `zero_shot`, `koleo_weight`,
`diversity_weight` and `consistency_weight`.

{terms}

## Poolings: `pooling.name`

{poolings}

## Without recipes

`unseen.loss`, `unseen.pooling` and `unseen.head` build parts by name for code of your own. Their settings
have the defaults of the tables above; keywords replace them.

{calls}

A call of a loss is checked: a wrong number, shape, type, device or range of labels, or a vector that is not
of unit length, is a ValueError that names input, row and remedy. `unseen.head("crt", channels=512)` maps
(B, L, H, W) to the vectors of both branches, `unseen.head("multihead", channels=(1024, 2048))` two maps to
one vector; their settings are fields of the recipes of `crt` and `multihead`. `unseen.train(images, labels,
"ms", loss=module, output="runs/mine")` trains with a loss of your own
([from pytorch-metric-learning](from-pytorch-metric-learning.md)).

```python
import torch
from torch.nn.functional import normalize

from unseen import head, loss, pooling

maps, labels = torch.rand(8, 64, 7, 7), torch.arange(8) // 2
vectors = normalize(pooling("gem", channels=64)(maps), dim=1)
multi_similarity = loss("multi_similarity")
assert (multi_similarity.alpha, multi_similarity.beta) == (2.0, 40.0)
multi_similarity(vectors, labels).backward()
proxy_anchor = loss("proxy_anchor", classes=4, dim=64, margin=0.2)  # its proxies are parameters
value = multi_similarity(vectors.detach(), labels) + proxy_anchor(vectors.detach(), labels)
value += 0.7 * loss("koleo")(vectors)
xbm = loss("memory", pair={{"name": "triplet"}}, dim=64, size=1024)  # it contains the batches of its calls
value += xbm(vectors, labels)
vector, attributes, average = pooling("gsp", channels=64, dim=32)(maps)
embedding, auxiliary = head("crt", channels=64)(maps)
```

## Networks: `backbone.name`

Every network of [timm](https://huggingface.co/docs/timm) that has feature maps (`resnet50.tv_in1k`,
`deit_small_patch16_224.fb_in1k`, `vit_small_patch16_dinov3`, ...), and these. [weights.md](weights.md) lists
the pretrained weights of the recipes.

{networks}

| field of `backbone` | meaning |
|---|---|
| `checkpoint` | a file of weights on disk, with timm's names or those of the published file |
| `pretrained` | the published weights of the network, which a library downloads; `false`: random weights |
| `stages` | the feature maps that the method reads, the coarsest last |
| `arguments` | passed to the constructor: with `img_size: 384` a transformer interpolates its positions |
| `batch_norm` | `frozen`: running statistics; `fixed`: also scale and shift; `batch`: batch statistics |
"""


def markdown() -> str:
    """The page."""
    part = ["name", "definition", "settings", "module"]
    recipe = ["recipe", "source", "network", "loss", "pooling", "dimensions"]
    network = ["name", "definition", "channels of its maps", "published weights", "module"]
    return _PAGE.format(
        recipes=_table(recipe, map(_recipe, published("methods"))),
        losses=_table(part, map(_part, members(Loss))),
        terms=_table(part, starmap(_term, ({"memory": CrossBatchMemory} | TERMS).items())),
        calls=_table(["name", "arguments of `unseen.loss`", "arguments of a call"], map(_loss_call, LOSSES)),
        poolings=_table(part, map(_part, members(Pooling, AttributePooling))),
        networks=_table(network, map(_network, PROJECT_NETWORKS)),
    )


def members(*unions: Any) -> list[type[Strict]]:
    """The settings classes of annotated unions, each once, in their order; unions may be nested."""
    classes: list[type[Strict]] = []
    for union in unions:
        if isinstance(union, type):
            classes += [union] if issubclass(union, Strict) else []
        else:
            classes += members(*get_args(union))
    return list(dict.fromkeys(classes))


def _recipe(name: str) -> list[str]:
    recipe = Definitions(Params(text="")).layers("cub", name).recipe()
    parts = [f"`{recipe.backbone.name}`", _loss(recipe), _pooling(recipe), _dimensions(recipe)]
    return [f"`{name}`", _first_sentence(name), *parts]


def _first_sentence(name: str) -> str:
    lines = (ROOT / "methods" / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    comment_lines = takewhile(lambda line: line.startswith("#"), lines)
    comment = " ".join(line.removeprefix("#").strip() for line in comment_lines)
    return re.split(r"\.(?= [A-Z]|$)", comment)[0]


def _loss(recipe: Recipe) -> str:
    if not recipe.training.iterations:
        return "none"
    terms = [f"`{recipe.loss.name}`"]
    terms += [f"`{field}`" for field in ("memory", "zero_shot") if getattr(recipe, field, None) is not None]
    weights = (name for name in type(recipe).model_fields if name.endswith("_weight"))
    return ", ".join([*terms, *(f"`{name}`" for name in weights if getattr(recipe, name) > 0)])


def _pooling(recipe: Recipe) -> str:
    return f"`{recipe.pooling.name}`" if hasattr(recipe, "pooling") else "of the method"


def _dimensions(recipe: Recipe) -> str:
    dim = recipe.embedding.dim if isinstance(recipe, CrtRecipe) else recipe.dim
    if dim is None:
        with torch.device("meta"):
            network = backbone(recipe.backbone.model_copy(update={"pretrained": False}))
        dim = network.cls_channels if _pooling(recipe) == "`cls`" else network.channels[-1]
    return str(dim)


def _part(settings: type[Strict]) -> list[str]:
    return [f"`{settings.model_fields['name'].default}`", *_described(settings)]


def _term(name: str, settings: type[Strict]) -> list[str]:
    return [f"`{name}`", *_described(settings)]


def _loss_call(name: str) -> list[str]:
    settings = LOSSES[name]
    in_training = settings in (HybridLoss, MemoryLoss)
    loss = Objective if in_training else load(settings.module)  # type: ignore[attr-defined]
    arguments = [argument for argument in inspect.signature(loss.forward).parameters if argument != "self"]
    return [f"`{name}`", *(", ".join(f"`{each}`" for each in names) for names in (sizes_of(name), arguments))]


def _described(settings: type[Strict]) -> list[str]:
    fields = {name: field for name, field in settings.model_fields.items() if name != "name"}
    defaults = [f"`{name}` {_default(field.get_default())}" for name, field in fields.items()]
    module = getattr(settings, "module", "").partition(":")[0]
    return [_first_paragraph(settings), ", ".join(defaults), _path(module)]


def _default(value: Any) -> str:
    if value is PydanticUndefined:
        return "(required)"
    return f"`{value.model_dump()['name']}`" if isinstance(value, Strict) else literal(value)


def _network(name: str) -> list[str]:
    entry = PROJECT_NETWORKS[name]
    with torch.device("meta"):
        network = entry.build({})
    weights = "none"
    if network.published is not None:
        how = "downloaded by a library" if network.published.fetch else "by hand, as `backbone.checkpoint`"
        weights = f"[{network.published.file}]({network.published.page}), {how}"
    definition = _first_paragraph(import_module(entry.module))
    channels = ", ".join(map(str, network.channels))
    return [f"`{name}`", definition, channels, weights, _path(entry.module)]


def _first_paragraph(documented: Any) -> str:
    return " ".join((inspect.getdoc(documented) or "").split("\n\n")[0].split())


def _path(module: str) -> str:
    return f"`{module.replace('.', '/').replace('unseen/', 'pipeline/', 1)}.py`" if module else ""


def _table(head: list[str], rows: Any) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


if __name__ == "__main__":
    sys.stdout.write(markdown())
