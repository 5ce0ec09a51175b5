"""The crash matrix: a run of twenty transitions, killed at every point where it touches the store or the world."""
