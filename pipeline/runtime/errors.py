"""The exception for problems that a user can correct.

A stage prints its message and exits with status 1, without a traceback. Any other exception that ends a stage
is a defect of this project and keeps its traceback.
"""


class UserError(Exception):
    """`what` states the problem and its place. `remedy` states what to do. Both are full sentences.

    >>> raise UserError("data/raw/folder contains no image.", "Put one directory per class there.")
    """

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}\n  {remedy}")
        self.what = what
        self.remedy = remedy

    def __reduce__(self) -> tuple[type["UserError"], tuple[str, str]]:
        return (type(self), (self.what, self.remedy))
