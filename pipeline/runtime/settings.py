"""The base of every settings model."""

import json
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]  # FAISS stores a seed in 32 bits
Scalar = bool | int | float | str

Model = TypeVar("Model", bound="Strict")


class Strict(BaseModel):
    """A frozen model. It refuses an unknown key, a value of another type ("8" or true for 8), NaN and
    infinity. It accepts 1 for a float."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        validate_default=True,
        protected_namespaces=(),
    )

    @classmethod
    def parse(cls: type[Model], value: Any) -> Model:
        """The settings from plain values of YAML or JSON. A list becomes a tuple. Raises
        pydantic.ValidationError."""
        return cls.model_validate_json(as_json(value))


def as_json(value: Any) -> str:
    """Plain values as JSON. A value that JSON lacks (a date of YAML) becomes text; validation refuses it."""
    return json.dumps(value, default=str)
