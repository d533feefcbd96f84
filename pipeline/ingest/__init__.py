"""From the files of a data set to its shards: listing, class-disjoint split, validation, optional shrinking.
Knows no torch."""
