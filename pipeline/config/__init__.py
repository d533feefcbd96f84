"""The resolution of settings from published recipes and params.yaml."""
