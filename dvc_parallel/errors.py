"""The exception for problems that a user can correct: of the graph, a target, an option, or the resources of
a stage."""


class RunError(Exception):
    """`what` states the problem and its place, `remedy` what to do."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}\n  {remedy}")
        self.what, self.remedy = what, remedy
