"""One file per paper, each read like section 3 of it: a recipe becomes a module that embeds images and knows
its loss."""
