"""Configuration and spaces of an enn-trainer checkpoint, from and to RON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from entity_env.agents.rogue_net.config import (
    RelposEncodingConfig,
    RogueNetConfig,
    TranslationConfig,
)
from entity_env.agents.rogue_net.enn_trainer.ron import Ron, Struct
from entity_env.core.spaces import (
    ActionName,
    ActionSpace,
    CategoricalActionSpace,
    Entity,
    GlobalCategoricalActionSpace,
    ObsSpace,
    SelectEntityActionSpace,
)
from entity_env.errors import CheckpointError, SchemaError, UsageError

LAST_VERSION: Final = 4

_Value = TypeVar("_Value")

# Defaults of missing settings in versions up to the key, from the upgrade rules of enn-trainer
# 0.1.16. Version 4 has the defaults of our classes.
_OLD_NET: Final = {1: {"n_layer": 1, "d_model": 64}}
_OLD_RELPOS: Final[Mapping[int, Mapping[str, bool]]] = {
    0: {"per_entity_values": True},
    3: {"enable_negative_distance_weight_bug": True},
}
_SIZES: Final = ("d_model", "n_layer", "n_head", "d_qk")
_WITHOUT_EFFECT: Final = ("embd_pdrop", "resid_pdrop", "attn_pdrop")  # dropout, ignored here
_NET: Final = {*_SIZES, *_WITHOUT_EFFECT, "pooling", "relpos_encoding", "translation"}


def config_from_ron(ron: Ron, where: str) -> RogueNetConfig:
    """The network of a `config.ron`; raises CheckpointError unless rogue-net could run it."""
    train = _struct(ron, "TrainConfig", where)
    version = _get(train, "version", int, where)
    if not 0 <= version <= LAST_VERSION:
        raise CheckpointError(
            f"{where}: version {version} of the configuration is unknown, expected 0 to "
            f"{LAST_VERSION}: read it with the release that wrote it"
        )
    net = _struct(train.fields.get("net"), "RogueNetConfig", where)
    if unknown := sorted(net.fields.keys() - _NET):
        raise CheckpointError(f"{where}: the network has the unknown setting {unknown[0]!r}")
    settings = {**_old(_OLD_NET, version), **net.fields}
    try:
        return RogueNetConfig(
            **{name: settings[name] for name in (*_SIZES, "pooling") if name in settings},
            relpos_encoding=_option(net, "relpos_encoding", _old(_OLD_RELPOS, version), where),
            translation=_option(net, "translation", {}, where),
        )
    except UsageError as error:
        raise CheckpointError(f"{where}: {error}") from error


def config_to_ron(config: RogueNetConfig) -> Struct:
    """The part `net` of a `config.ron`; without dropout, which enn-trainer applies even in play."""
    if config.memory:
        raise CheckpointError(
            f"the network has a memory of {config.memory} numbers, which rogue-net 0.1.9 lacks"
        )
    if config.pooling is not None:
        raise CheckpointError(
            f"the network pools ({config.pooling}) instead of attending, which rogue-net 0.1.9 "
            "cannot run: save the network as a checkpoint of entity_env"
        )
    return Struct(
        "RogueNetConfig",
        {
            **dict.fromkeys(_WITHOUT_EFFECT, 0.0),
            **{name: getattr(config, name) for name in _SIZES},
            "pooling": None,
            "relpos_encoding": _option_to_ron(config.relpos_encoding),
            "translation": _option_to_ron(config.translation),
        },
    )


def spaces_from_ron(state: Struct, where: str) -> tuple[ObsSpace, dict[ActionName, ActionSpace]]:
    """The spaces of a `state.ron`, in the order of its maps."""
    obs = _struct(state.fields.get("obs_space"), "ObsSpace", where)
    entities = _get(obs, "entities", dict, where)
    actions = _get(state, "action_space", dict, where)
    try:
        obs_space = ObsSpace(
            global_features=_texts(obs, "global_features", where),
            entities={
                _text(name, where): Entity(
                    _texts(_struct(entity, "Entity", where), "features", where)
                )
                for name, entity in entities.items()
            },
        )
        action_space = {
            _text(name, where): _action_space(space, where) for name, space in actions.items()
        }
    except SchemaError as error:
        raise CheckpointError(f"{where}: {error}") from error
    return obs_space, action_space


def spaces_to_ron(
    obs_space: ObsSpace, action_space: Mapping[ActionName, ActionSpace]
) -> dict[str, Ron]:
    """The fields `obs_space` and `action_space` of a `state.ron`.

    Raises:
        CheckpointError: the observations have relations.
    """
    if obs_space.relations:
        raise CheckpointError(
            f"rogue-net has no relations, such as {next(iter(obs_space.relations))!r}: "
            "export the agent to an .agent file instead"
        )
    entities: dict[str | int | bool, Ron] = {
        name: Struct("Entity", {"features": [*entity.features]})
        for name, entity in obs_space.entities.items()
    }
    actions: dict[str | int | bool, Ron] = {
        name: _action_to_ron(name, space) for name, space in action_space.items()
    }
    return {
        "obs_space": Struct(
            "ObsSpace",
            {"global_features": [*obs_space.global_features], "entities": entities},
        ),
        "action_space": actions,
    }


def _action_space(ron: Ron, where: str) -> ActionSpace:
    name = ron.name if isinstance(ron, Struct) else type(ron).__name__
    if not isinstance(ron, Struct):
        raise CheckpointError(f"{where}: expected an action space, got a {name}")
    match name:
        case "CategoricalActionSpace":
            return CategoricalActionSpace(_texts(ron, "index_to_label", where))
        case "GlobalCategoricalActionSpace":
            return GlobalCategoricalActionSpace(_texts(ron, "index_to_label", where))
        case "SelectEntityActionSpace":
            return SelectEntityActionSpace()
        case _:
            raise CheckpointError(f"{where}: there is no action space {name[:80]!r}")


def _action_to_ron(name: ActionName, space: ActionSpace) -> Struct:
    match space:
        case CategoricalActionSpace() | GlobalCategoricalActionSpace():
            return Struct(type(space).__name__, {"index_to_label": [*space.index_to_label]})
        case SelectEntityActionSpace():
            return Struct("SelectEntityActionSpace")
        case _:
            raise CheckpointError(
                f"action {name!r} chooses real numbers, which enn-trainer does not support: "
                "save the network as a checkpoint of entity_env"
            )


def _option(net: Struct, name: str, old: Mapping[str, Any], where: str) -> Any:  # noqa: ANN401 - RogueNetConfig checks it
    option = net.fields.get(name)
    return None if option is None else {**old, **_struct(option, name, where).fields}


def _option_to_ron(option: RelposEncodingConfig | TranslationConfig | None) -> Ron:
    if option is None:
        return None
    fields = {
        name: [*value] if isinstance(value, tuple) else value
        for name, value in vars(option).items()
    }
    return Struct(type(option).__name__, fields)


def _old(defaults: Mapping[int, Mapping[str, Any]], version: int) -> dict[str, Any]:
    return {
        name: value
        for last, values in defaults.items()
        if version <= last
        for name, value in values.items()
    }


def _struct(ron: Ron, name: str, where: str) -> Struct:
    """Checks that `ron` is a struct; its name may differ, as that of a subclass does."""
    if not isinstance(ron, Struct):
        raise CheckpointError(f"{where}: expected {name}(…), got a {type(ron).__name__}")
    return ron


def _get(struct: Struct, key: str, cls: type[_Value], where: str) -> _Value:
    value: Any = struct.fields.get(key)
    if type(value) is not cls:
        raise CheckpointError(
            f"{where}: {struct.name[:80] or 'the struct'} needs a {cls.__name__} under {key!r}, "
            f"got a {type(value).__name__}"
        )
    return value


def _texts(struct: Struct, key: str, where: str) -> tuple[str, ...]:
    return tuple(_text(item, where) for item in _get(struct, key, list, where))


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise CheckpointError(f"{where}: expected a name, got a {type(value).__name__}")
    return value
