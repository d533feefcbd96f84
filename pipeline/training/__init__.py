"""Training in plain torch: the step, the loop, an exact distributed gradient, exact resume.

Nothing here imports Ray.
"""
