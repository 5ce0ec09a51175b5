"""Tests of the language-model layer, all over the client that the engine really builds."""
