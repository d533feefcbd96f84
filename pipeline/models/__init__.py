"""Networks that turn images into feature maps: backbones of timm, batch normalisation over workers, second-order attention. Torch only."""
