"""CartPole compared with Gymnasium and EnvPool, the other classic games, and the mask."""

from __future__ import annotations

from benchmarks.batch_groups.plan import Entry, Setup, measured, median_us, ratio
from benchmarks.peers.environment import envpool_python

# Contenders run in this order: those compared with each other are next to each other.
_ENTRIES = {
    "vector_4096": Entry("classic_gymnasium:vector", (4096,)),
    "ours_4096": Entry("classic_ours:cart_pole", (4096,)),
    "auto_4096": Entry("classic_ours:cart_pole_auto", (4096,)),
    "plain_4096": Entry("classic_ours:cart_pole_plain", (4096,)),
    "sync_4096": Entry("classic_gymnasium:sync", (4096,)),
    "vector_64": Entry("classic_gymnasium:vector", (64,)),
    "ours_64": Entry("classic_ours:cart_pole", (64,)),
    "single_1": Entry("classic_gymnasium:single", (1,)),
    "ours_1": Entry("classic_ours:cart_pole", (1,)),
    "mountain_car_4096": Entry("classic_ours:mountain_car", (4096,)),
    "pendulum_4096": Entry("classic_ours:pendulum", (4096,)),
    "mask_4096": Entry("classic_ours:mask", (4096,)),
    "flatnonzero_4096": Entry("classic_ours:flatnonzero", (4096,)),
}

_RATIOS = {
    "vs_cartpole_vector_env_4096": ("ours_4096", "vector_4096"),
    "vs_cartpole_vector_env_64": ("ours_64", "vector_64"),
    "vs_sync_4096": ("ours_4096", "sync_4096"),
    "vs_numpy_4096": ("ours_4096", "plain_4096"),
    "vs_gym_single_1": ("ours_1", "single_1"),
    "mask_vs_flatnonzero_4096": ("mask_4096", "flatnonzero_4096"),
}
"""By figure: our contender and theirs."""


def figures(setup: Setup) -> dict[str, float]:
    """Millions of steps per second, ratios, an overhead in percent, and µs per mask."""
    python = envpool_python(setup.say)
    pools = {
        f"envpool_4096_{threads}_threads": Entry(
            "classic_envpool:cart_pole", (4096, threads), python
        )
        for threads in (1, 2)
    }
    rounds = measured({**_ENTRIES, **pools}, setup)
    return {
        "full_loop_msteps_4096": 1 / median_us(rounds, "ours_4096"),
        **{figure: ratio(rounds, *pair) for figure, pair in _RATIOS.items()},
        "vs_envpool_4096": min(ratio(rounds, "ours_4096", name) for name in pools),
        "no_reset_overhead_pct_4096": (1 / ratio(rounds, "ours_4096", "auto_4096") - 1) * 100,
        "mask_us_4096": median_us(rounds, "mask_4096"),
        "mountain_car_msteps_4096": 1 / median_us(rounds, "mountain_car_4096"),
        "pendulum_msteps_4096": 1 / median_us(rounds, "pendulum_4096"),
        **{
            f"msteps_{name}": 1 / median_us(rounds, name)
            for name in rounds
            if not name.startswith(("mask", "flatnonzero"))
        },
    }
