"""`rampmeter demo`: a herd of real training jobs on one emulated storage, then the same jobs metered.

Real: the training processes, the checkpoints and their files, the coordinator, the kill and the restore. Emulated, and
said so on screen: the shared storage's bandwidth and the time that an accelerator takes for a step and for its copy to
the host. Nothing here is imported by the coordinator itself.
"""
