"""What a workflow is: contexts, states, transitions, policies. No clock, no network, no database."""
