"""Reading corpora: what samples there are, and where their bytes are."""
