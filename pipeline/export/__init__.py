"""From a trained model to embedding files. `embeddings` is the file format (numpy and Arrow), `model` runs the network (torch)."""
