"""The base of every settings model."""

import json
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict

Model = TypeVar("Model", bound="Strict")


class Strict(BaseModel):
    """Frozen. An unknown key, a value of another type ("8" or true for 8), NaN and infinity are errors; 1 is
    a float too."""

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
        """The settings in plain values, as YAML and JSON hold them: a list is a tuple. Raises
        pydantic.ValidationError."""
        return cls.model_validate_json(as_json(value))


def as_json(value: Any) -> str:
    """Plain values as JSON; what JSON does not have (a date of YAML) as text, which validation then
    refuses."""
    return json.dumps(value, default=str)
