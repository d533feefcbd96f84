"""What pays on labelled photos: a network as published, or a layer or head that is trained on its features.

Rungs, from cheap to expensive, on the same unseen classes:

    frozen    the published embedding, at several image sizes
    linear    a linear map of the embedding, trained with proxies of the classes
    head      pooling, projection and loss of a method, trained on the feature maps

The network runs once for each size, and once for the maps; features and maps are kept (features.py,
pipeline/heads/maps.py). Held-out classes of the training classes choose the rung (ladder.py). The chosen
model is a directory for `unseen index --model`.
"""
