"""Everything that imports Ray: the connection to a cluster, training workers, trials."""
