"""What every trainer shares: folders and curves of runs, callbacks, ranks, signals, opponents.

Nothing here imports a trainer: PPO is in `ppo`, behavioural cloning in `imitation`.
"""
