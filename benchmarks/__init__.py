"""`make bench`: every target in one run, interleaved, against the peers; ratios, not absolute times."""
