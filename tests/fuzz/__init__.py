"""Random networks, losses and data, each with a truth computed without the library."""
