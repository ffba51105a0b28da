from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.numpy_net.single_reader import RequestedAction
from entity_env.core.ragged import Floats
from entity_env.core.spaces import EntityName

@final
class Forward:
    def __new__(cls, agent: bytes, source: tuple[Any, ...], /) -> Forward: ...
    def decide(
        self,
        own: dict[EntityName, Floats],
        shared: Floats,
        visible: NDArray[np.bool_] | None,
        asked: list[RequestedAction],
        temperature: float,
        state: Floats | None,
        /,
    ) -> bool: ...
