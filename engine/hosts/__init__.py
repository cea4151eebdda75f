"""Who decides, call by call, whether a compiled plan or the eager module answers."""
