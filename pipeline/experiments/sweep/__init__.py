"""Search over recipe fields with Ray Tune, evaluated on classes held out of training. No other stage depends
on it, because the order in which trials finish is not reproducible."""
