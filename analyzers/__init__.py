"""From the evidence table to verdicts: the debugging order, the context, the catalogue of causes."""
