"""Values come back as they were, from every store and on every way, or are refused with their path."""
