"""The methods, one file per paper, in the order of its section 3. A recipe becomes a module that embeds
images and computes its loss."""
