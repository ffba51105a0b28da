"""The stepped contract: `EpisodeEnv`, `Step` and `Record`, for one environment or many.

For callers that control every reset; training uses `vec`.
"""
