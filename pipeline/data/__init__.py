"""What training and export read: Arrow shards, decoding, P x K batches, augmentation, loaders."""
