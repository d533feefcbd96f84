"""unseen: image retrieval evaluated on classes not seen in training.

Letters of the shapes in signatures, the same in every file:

    B  images of a batch           D  embedding dimension        N  gallery (or data set) size
    C  classes                     L  channels of a feature map  Q  queries
    H  height, W  width of a map   M  prototypes                 R  relevant gallery items of a query
    S  samples in a memory         K  neighbours asked for       P  positions of a feature map, P = H W
"""
