"""Files of data sets that other people publish: safe reading of archives, downloads with a hash, restricted
unpickling."""
