"""What is measured: each module offers `VARIANTS`, by name."""
