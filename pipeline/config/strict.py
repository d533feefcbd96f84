"""The base of every settings model."""

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """Frozen, hashable, no unknown key, no silent coercion between kinds, no NaN or infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True, protected_namespaces=())
