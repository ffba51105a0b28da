"""The stepped contract: `EpisodeEnv`, `Step` and `Record`, for one environment or many.

For callers that choose every reset; training uses `vec`.
"""
