"""Everything that imports Ray: connection, training workers, trials, tasks side by side, export workers."""
