"""Which positions of an image determine its embedding: weights (B, P) of the P positions of a feature map.

Every method has `contributions` (contribution.py): the share of each position in a similarity. A recipe or a
pooling that defines weights of its own names a function with `positions`, as it names its class with
`module` (pipeline/config):

    crt.py           projection of the positions onto the prototypes (CRT eq. 2, fig. 2)
    multihead.py     second-order attention of points in both maps (Multi-Head eq. 1, fig. 6)
    transport.py     transported mass and dominant prototype (GSP sec. 4.1, fig. 3b and 5)
    class_token.py   attention of the class token (IRT)

A training does not import this package, so that a change here trains nothing again.
"""
