"""One file per data set: each says which pictures there are, their class and split, and how to read one."""
