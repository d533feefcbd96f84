"""The test embeddings of a member, by the weights that its fold selected."""

from pathlib import Path

from unseen.data.embeddings import write
from unseen.data.shards import Shards
from unseen.training.export.model import Embed


def export_member(shards: Path, model: Path, output: Path, embed: Embed) -> None:
    """Writes the embeddings of the test images to `output`.

    Raises UserError if a file of the model is missing, an image cannot be decoded, or an embedding is not a
    finite unit vector.
    """
    data = Shards(shards)
    rows = data.rows("test")
    embedding = embed(model, "weights", shards, rows, "export").embedding
    write(output, rows, data.labels[rows], embedding, data.is_query[rows], data.is_gallery[rows])
