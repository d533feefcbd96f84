"""Programs of the repository that no wheel contains."""
