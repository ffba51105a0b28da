"""The size and the options of a RogueNet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Final

from entity_env.agents.rogue_net.options import RelposEncodingConfig, TranslationConfig
from entity_env.errors import UsageError, shown

MAX_LAYERS: Final = 1000
MAX_WIDTH: Final = 1 << 16
"""Of `d_model`, `n_head` and `d_qk`."""
MAX_NUMBERS: Final = 1 << 28
"""Parameters of a network: 1 GiB of float32."""

_SIZES: Final = ("d_model", "n_layer", "n_head", "d_qk")
_OPTIONS: Final = {"relpos_encoding": RelposEncodingConfig, "translation": TranslationConfig}


@dataclass(frozen=True)
class RogueNetConfig:
    """Chooses the size of a RogueNet, and what it does with positions.

    Args:
        d_model: numbers that describe one entity inside the network; a multiple of `n_head`.
        n_layer: transformer blocks; 0 leaves every entity on its own.
        n_head: attention heads in each block.
        d_qk: numbers that an actor and a selectable entity are compared by.
        relpos_encoding: lets attention see relative positions; None = it does not.
        translation: puts one entity at the origin; None = positions stay as they are.

    The options may be given as the mappings that `to_json` makes of them.

    Raises:
        UsageError: a size that no network can have, or larger than is reasonable (`MAX_LAYERS`,
            `MAX_WIDTH`, `MAX_NUMBERS`), or options that contradict each other.
    """

    d_model: int = 32
    n_layer: int = 2
    n_head: int = 2
    d_qk: int = 16
    relpos_encoding: RelposEncodingConfig | None = None
    translation: TranslationConfig | None = None

    def __post_init__(self) -> None:
        for name in _SIZES:
            value = getattr(self, name)
            smallest, largest = (0, MAX_LAYERS) if name == "n_layer" else (1, MAX_WIDTH)
            if type(value) is not int or not smallest <= value <= largest:
                raise UsageError(
                    f"{name} must be an integer from {smallest} to {largest}, got {shown(value)}"
                )
        if self.d_model % self.n_head:
            raise UsageError(
                f"d_model must be a multiple of n_head: got d_model {self.d_model} "
                f"with n_head {self.n_head}"
            )
        if 12 * self.d_model**2 * self.n_layer > MAX_NUMBERS:
            raise UsageError(
                f"{self.n_layer} layers with d_model {self.d_model} have more than {MAX_NUMBERS} "
                "parameters: choose a smaller network"
            )
        for name, cls in _OPTIONS.items():
            value = getattr(self, name)
            if not isinstance(value, cls | None):
                object.__setattr__(self, name, _option(name, cls, value))

    @property
    def d_head(self) -> int:
        """Numbers that one attention head compares entities by."""
        return self.d_model // self.n_head

    def to_json(self) -> dict[str, object]:
        """The configuration as JSON; options that are not used are left out."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, data: object) -> RogueNetConfig:
        """The configuration that `to_json` gave.

        Raises:
            UsageError: a size is missing, a setting is unknown, or cannot work.
        """
        known = {field.name for field in fields(cls)}
        if not isinstance(data, dict) or not set(_SIZES) <= set(data) <= known:
            got = ", ".join(map(str, data))[:200] if isinstance(data, dict) else shown(data)
            raise UsageError(
                f"the network needs {', '.join(sorted(_SIZES))} and may have "
                f"{', '.join(_OPTIONS)}; got {got}"
            )
        return cls(**data)


def _option(
    name: str, cls: type[RelposEncodingConfig | TranslationConfig], value: object
) -> RelposEncodingConfig | TranslationConfig:
    if not isinstance(value, Mapping):
        raise UsageError(f"{name} must be a {cls.__name__} or None, got {shown(value)}")
    try:
        return cls(**value)
    except TypeError as error:  # a setting that is missing or unknown
        raise UsageError(f"{name}: {error}") from error
