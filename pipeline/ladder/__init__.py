"""What pays on labelled photos: a network as published, or a layer that is trained on its features.

Rungs, from cheap to expensive, on the same unseen classes:

    frozen    the published embedding, at several image sizes
    linear    a linear map of the embedding, trained with proxies of the classes

The network runs once for each size; its features are kept (features.py). Held-out classes of the training
classes choose the rung (ladder.py). The chosen model is a directory for `unseen index --model`.
"""
