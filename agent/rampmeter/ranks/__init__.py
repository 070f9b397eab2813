"""What the ranks of one job tell each other: when to save, that all are there, how fast to write, and who failed."""
