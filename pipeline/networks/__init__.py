"""Networks from images to feature maps, and blocks on feature maps. They import torch and timm only."""
