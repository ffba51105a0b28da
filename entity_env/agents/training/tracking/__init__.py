"""What a training run tells: figures of its progress, and the settings and curves in its folder."""
