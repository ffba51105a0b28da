"""Records of a training run: progress metrics, and the settings and curves in its folder."""
