"""Frozen networks: the photos of a folder, their stored vectors and maps, and what is trained on these.

    network.py    a published network: loads, writes and names it
    pictures.py   the photos of a folder;  labels.py: their labels
    store.py      rows of arrays by the sha256 of a photo: vectors (features.py) and maps (maps.py)
    embedder.py   photos -> unit vectors
    trunk.py      the backbone that reads cached maps
    head.py       the recipe of a head;  head_training.py: its training by the step of unseen.training
    head_runner.py   the records of heads on photos, with and without training
    linear.py     W = I + A behind the network;  tail.py: its last layers;  proxies.py: the loss of both

The network runs once for each photo. A training of a head costs that of the head alone: thousands of steps
take minutes on a laptop. Photos are not augmented.
"""
