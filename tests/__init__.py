"""Tests of agentflow and of the workflows that come with it."""
