"""Everything that imports Ray: connection, training workers, trials, concurrent tasks, export workers."""
