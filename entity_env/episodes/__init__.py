"""The stepped contract: `EpisodeEnv`, `Step` and `Record`, for one environment or many.

Whoever steps by hand and resets by choice uses it; training uses `vec`.
"""
