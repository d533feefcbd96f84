"""The declaration of the ensemble protocol. Two metrics files are comparable only if the hashes are equal."""

import dataclasses

from unseen.evaluation.protocol import Declared, Protocol

# Fields of the retrieval protocol that do not apply to ensembles.
_NOT_APPLICABLE = ("confidence", "seed", "interval", "map", "nmi", "class_mean")


@dataclasses.dataclass(frozen=True)
class EnsembleProtocol(Declared):
    """The declaration of retrieval, and of how members and ensembles are made. Each word is part of the hash:
    edit a word only if the meaning changes."""

    folds: int
    repeats: int
    recall_at: tuple[int, ...]
    blocks: str = "the train classes in the order of their labels, cut at floor(i C / folds), i = 0 .. folds"
    members: str = (
        "model k of each repeat is validated on block folds - k (from 0) and trained on the others, each "
        "from a seed of its own"
    )
    weights: str = "those of the best validation of the member"
    ensembles: str = "every choice of one repeat of each model"
    separated: str = "arithmetic mean over the models of an ensemble of their own metric"
    concatenated: str = "metric of the models' unit embeddings side by side, divided by sqrt(folds)"
    spread: str = "population standard deviation over the ensembles, as <name>_std"

    def declaration(self) -> dict[str, object]:
        retrieval = Protocol("test", self.recall_at, 0.5, 0).declaration()
        return {
            **super().declaration(),
            **{name: value for name, value in retrieval.items() if name not in _NOT_APPLICABLE},
        }
