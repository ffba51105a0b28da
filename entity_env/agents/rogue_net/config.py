"""The size of a RogueNet."""

from __future__ import annotations

from dataclasses import dataclass, fields

from entity_env.errors import UsageError


@dataclass(frozen=True)
class RogueNetConfig:
    """Chooses the size of a RogueNet.

    Args:
        d_model: numbers that describe one entity inside the network; a multiple of `n_head`.
        n_layer: transformer blocks; 0 leaves every entity on its own.
        n_head: attention heads in each block.
        d_qk: numbers that an actor and a selectable entity are compared by.

    Raises:
        UsageError: a size that no network can have.
    """

    d_model: int = 32
    n_layer: int = 2
    n_head: int = 2
    d_qk: int = 16

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            smallest = 0 if field.name == "n_layer" else 1
            if type(value) is not int or value < smallest:
                raise UsageError(
                    f"{field.name} must be an integer of at least {smallest}, got {value!r}"
                )
        if self.d_model % self.n_head:
            raise UsageError(
                f"d_model must be a multiple of n_head: got d_model {self.d_model} "
                f"with n_head {self.n_head}"
            )
