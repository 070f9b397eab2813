"""Reading the job's own checkpoints back beside training, to know that storage has kept them."""
