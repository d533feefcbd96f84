"""One file per data set. Each lists the pictures with class and split, and reads a picture."""
