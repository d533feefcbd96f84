"""Mistakes in parts from outside the project, and in their settings, are errors with line and key."""

from pathlib import Path
from textwrap import indent

import numpy as np
import pytest

from tests.runtime.outside import CLASS, outside_project
from unseen.config.definitions import Definitions
from unseen.config.document import Params
from unseen.data.sampler import make_sampler
from unseen.experiments.plan.facts import Facts, _located
from unseen.experiments.plan.files import plan
from unseen.methods.settings import BaselineRecipe
from unseen.runtime.errors import UserError


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return outside_project(tmp_path, monkeypatch)


ABOVE = {
    **dict.fromkeys(
        ("loss", "pooling", "backbone", "batch", "input"), "methods:\n  mine:\n    like: ms\n    {}:\n"
    ),
    "method": "methods:\n  mine:\n",
    "source": "datasets:\n  own:\n    source:\n",
    "metrics": "evaluate:\n  metrics:\n",
    "sections": "report:\n  sections:\n",
}
RUN = "run: {datasets: [own], methods: [mine], seeds: [0]}\n"
OTHERS = {
    "methods": "methods: {mine: {like: ms}}\n",
    "datasets": "datasets: {own: {source: {kind: parts}}}\n",
    **{
        name: f"{name}: {{}}\n"
        for name in ("train", "ensemble", "export", "evaluate", "analyze", "report", "ingest")
    },
}


@pytest.mark.parametrize(
    ("key", "lines", "message"),
    [
        ("loss", "gamma: 1\nmodule: outsid.circle:Circle", r":6: methods.mine.loss.module: .*No module"),
        ("loss", "module: outside.circle:Circl", r":5: .*no attribute 'Circl'"),
        ("loss", "module: outside.helper:scaled", r":5: .*scaled is not a class"),
        ("loss", f"module: {CLASS}", r":4: methods.mine.loss.gamma is missing"),
        ("loss", f"module: {CLASS}\ngamma: 1\ngama: 2", r":7: .*loss.gama is not .*\n.*mean gamma"),
        ("loss", f"module: {CLASS}\ngamma: '1'", r":6: methods.mine.loss.gamma: .*valid number"),
        (
            "loss",
            f"name: hybrid\nproxy: {{module: '{CLASS}', gamma: 1}}",
            r":6: .*'pairs'; .*be proxies",
        ),
        ("loss", "module: outside.wrong:Abstract", r":5: .*loss.module: .*Abstract does not define `cost`"),
        (
            "loss",
            "module: outside.wrong:Cost",
            r":5: .*called as `cost\(pairs\)`, it defines `cost\(self, a, b\)`",
        ),
        ("loss", "module: outside.wrong:Named", r":5: .*a part has no argument `name`: the recipe needs"),
        ("loss", "module: outside.wrong:NoForward", r":5: .*NoForward has no attribute `forward`"),
        ("loss", "module: outside.wrong:NoModule", r":5: .*NoModule is no subclass of torch.nn.Module"),
        ("loss", "module: outside.wrong:OneSided", r":5: .*called as `forward\(embeddings, labels\)`, it"),
        ("loss", "module: outside.wrong:OfTwoSides", r":5: .*as `forward\(query, positive, negatives\)`, it"),
        ("pooling", "module: outside.wrong:NoModule", r":5: .*NoModule is no subclass of torch.nn.Module"),
        ("backbone", "module: outside.wrong:NoBlocks", r":5: .*no attribute 'NoBlocks'"),
        (
            "batch",
            "module: outside.wrong:NoStep",
            r":5: .*called as `draw\(step\)`, it defines `draw\(self\)`",
        ),
        ("input", "module: outside.wrong:NoKey", r":5: .*called as `__call__\(image, key\)`, it defines"),
        ("method", "method: outside.wrong:Terms", r":3: .*`terms\(outputs, labels, samples, observed\)`, it"),
        (
            "method",
            "method: outside.wrong:NoMethod",
            r":3: .*NoMethod is no subclass of unseen.methods.method",
        ),
        ("metrics", "mrr:\n  module: outside.wrong:Values", r":4: .*called as `values\(\)`, it defines"),
        (
            "pooling",
            "module: outside.circle:Power\nexponnt: 2",
            r":6: .*exponnt is not .*\n.*mean exponent.*: exponent, module",
        ),
        ("backbone", "module: outside.circle:Circle", r":5: .*backbone.module: .*no attribute `plan`"),
        ("backbone", "module: outside.network:Conv2\narguments: {kernal: 3}", r":6: .*kernal is not a"),
        ("backbone", "module: outside.network:Conv2\narguments: {kernel: a}", r":6: .*integer, got 'a'"),
        ("batch", "module: outside.images:Noise", r":5: .*batch.module: .*has no attribute `draw`"),
        ("batch", "module: outside.images:Pairs\nclasses: 4\nshft: 1", r":7: .*batch.shft is not a"),
        ("batch", "module: outside.images:Pairs\nsampling: tuples", r":6: .*sampling: .*'classes'"),
        ("input", "module: outside.image:Noise", r":5: .*input.module: .*No module"),
        ("input", "module: outside.images:Noise", r":4: methods.mine.input.levels is missing"),
        ("input", "module: outside.images:Noise\nlevels: a", r":6: .*input.levels: .*integer"),
        ("method", "method: outside.method:Compac", r":3: methods.mine.method: .*no attribute 'Compac'"),
        ("method", "method: outside.circle:Circle", r":3: .*method: .*Circle has no attribute `Settings`"),
        ("method", "method: compact", r"must be one of baseline, .*, or a class"),
        ("method", "method: outside.method:Compact", r":2: methods.mine.weight is missing"),
        ("method", "method: outside.method:Compact\nweight: 1\nwight: 1", r":5: .*wight is not a setting"),
        ("method", "method: outside.method:Compact\nweight: a", r":4: methods.mine.weight: .*valid number"),
        (
            "source",
            "module: outside.redaer",
            r":4: datasets.own.source.module: .*No module named 'outside",
        ),
        ("source", "module: outside.helper", r":4: .*helper has no attribute `collection`"),
        ("source", "module: outside.reader\nclases: 6", r":5: .*source.clases is not .*\n.*mean classes"),
        ("source", "module: outside.reader\nclasses: a", r":5: .*source.classes: .*valid integer"),
        ("source", "module: outside.reader\nkind: folder", r":5: .*source.kind is not a setting"),
        ("metrics", "mrr:\n  module: outside.metrics:Mean", r":4: evaluate.metrics.mrr.module: .*No module"),
        ("metrics", "mrr:\n  module: outside.circle:Circle", r":4: .*mrr.module: .*no attribute `values`"),
        ("metrics", "mrr:\n  module: outside.metric:mean", r":4: .*mrr.module: .*mean is not a class"),
        ("metrics", "mrr:\n  module: outside.metric:Reciprocal\n  pwer: 2", r":5: .*mrr.pwer is not a"),
        ("metrics", "mrr:\n  module: outside.metric:Reciprocal\n  power: a", r":5: .*mrr.power: .*integer"),
        ("metrics", "map:\n  module: outside.metric:Reciprocal", r":2: .*map is a name of the project"),
        ("metrics", "mrr: {power: 2}", r":3: evaluate.metrics.mrr.module is missing"),
        ("sections", "own: {module: outside.sectoin}", r":3: report.sections.own.module: .*No module"),
        ("sections", "own: {module: outside.reader}", r":3: .*own.module: .*no attribute `content`"),
        ("sections", "own: {module: outside.bare}", r":3: .*own.module: .*template bare.html is not beside"),
        ("sections", "own: {module: outside.section, cuont: 2}", r":3: .*own.cuont is not a setting"),
        ("sections", "own: {module: outside.section, count: a}", r":3: .*own.count: .*valid integer"),
    ],
)
def test_a_mistake_is_an_error_with_line_and_key(key: str, lines: str, message: str) -> None:
    above = ABOVE[key].format(key)
    others = [text for block, text in OTHERS.items() if not above.startswith(f"{block}:")]
    width = len(above.splitlines()[-1]) - len(above.splitlines()[-1].lstrip()) + 2
    text = f"{above}{indent(lines, ' ' * width)}\n{RUN}{''.join(others)}"
    with pytest.raises(UserError, match=message):
        plan(Params(text=text))


@pytest.mark.parametrize(
    ("block", "what", "field"),
    [
        ("pooling: {module: 'outside.wrong:NoChannels'}", "no attribute 'out_channels'", "pooling.module"),
        ("backbone: {module: 'outside.wrong:NoBlock'}", "no attribute `first`", "backbone.module"),
        ("method: outside.wrong:Init", "positional argument", "method"),
    ],
)
def test_a_part_that_cannot_be_built_is_an_error_that_names_its_field(
    block: str, what: str, field: str
) -> None:
    like = "" if block.startswith("method") else "like: ms, "
    network = "" if block.startswith("backbone") else ", backbone: {name: resnet18, pretrained: false}"
    definitions = Definitions(Params(text=f"methods: {{mine: {{{like}{block}{network}}}}}"))
    recipe = definitions.layers("cub", "mine").recipe()
    for fact in (lambda: Facts().built(recipe, False), lambda: Facts().cost(recipe)):
        with pytest.raises(UserError, match=f"cannot be built or called: .*{what}") as caught:
            fact()
        assert f"Correct {field}; docs/extending.md has its contract" in caught.value.remedy
    published = definitions.layers("cub", "ms").recipe()
    with pytest.raises(ZeroDivisionError), _located(published):
        raise ZeroDivisionError


@pytest.mark.parametrize("name", ["OfSamples", "OfTuples"])
def test_a_loss_gets_what_its_inputs_are(name: str) -> None:
    batch = ", batch: {sampling: tuples}" if name == "OfTuples" else ""
    text = f"methods: {{mine: {{like: ms, loss: {{module: 'outside.wrong:{name}'}}{batch}}}}}"
    recipe = Definitions(Params(text=text)).layers("cub", "mine").recipe()
    assert isinstance(recipe, BaselineRecipe)
    assert recipe.loss.inputs == name.removeprefix("Of").lower()


def test_a_sampler_that_fails_is_an_error_that_names_it() -> None:
    for name, what in (("NoSteps", "no attribute 'steps_per_epoch'"), ("Changing", "two batches for step 0")):
        module = "images" if name == "Changing" else "wrong"
        text = f"methods: {{mine: {{like: ms, batch: {{module: 'outside.{module}:{name}'}}}}}}"
        batch = Definitions(Params(text=text)).layers("cub", "mine").recipe().batch
        with pytest.raises(UserError, match=f"The sampler outside.{module}:{name} .*{what}") as caught:
            make_sampler(np.repeat(np.arange(8), 10), batch, 0)
        assert "batch.module" in caught.value.remedy
