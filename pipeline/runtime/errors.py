"""The one exception for what a user can put right.

A stage prints its message and exits with 1, without a traceback. Anything else that escapes is a defect of
this project and keeps its traceback.
"""


class UserError(Exception):
    """What is wrong, where, and what to do about it, in that order, in full sentences.

    >>> raise UserError("data/raw/folder holds no image.", "Put one directory per class there, or set
    datasets.folder.source.path.")
    """

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}\n  {remedy}")
        self.what = what
        self.remedy = remedy

    def __reduce__(self) -> tuple[type["UserError"], tuple[str, str]]:
        return (type(self), (self.what, self.remedy))
