"""`rampmeter probe`: what a directory takes, measured by writing to it within bounds and removing what was written."""
