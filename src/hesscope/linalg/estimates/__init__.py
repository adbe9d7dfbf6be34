"""Numbers of a matrix from random probes: traces, diagonals and norms, each with its standard error."""
