"""Reading checkpoints at the pace that a read lease allows."""
