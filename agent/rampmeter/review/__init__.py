"""`rampmeter review`: what is wrong with a checkpoint plan, what that costs, and what to change."""
