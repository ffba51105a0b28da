"""Parts that all trainers share: folders and curves of runs, callbacks, ranks, signals, opponents.

Nothing here imports a trainer: PPO is in `ppo`, behavioral cloning in `imitation`.
"""
