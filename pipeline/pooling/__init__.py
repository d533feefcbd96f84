"""How a feature map becomes one vector: one pooling per file."""
