"""What pays on labelled photos: a network as published, or a layer head that is trained on its features,
or its last layers.

Rungs, from cheap to expensive, on the same unseen classes:

    frozen    the published embedding, at several image sizes
    linear    a linear map of the embedding, trained with proxies of the classes
    head      pooling, projection and loss of a method, trained on the feature maps
    adapt     the last layers of the network, trained after the proxies of the classes (frozen/tail.py)

The network runs once for each size, once for the maps, and its first layers once for the inputs of the last
ones; all are kept (pipeline/frozen/store.py and maps.py), and so are the trainings (runner.py). Held-out
classes of the training classes choose the rung (ladder.py). The chosen model is a directory for `unseen index
--model`.
"""
