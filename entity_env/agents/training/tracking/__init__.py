"""Records of a training run: progress, and the settings and curves in its folder."""
