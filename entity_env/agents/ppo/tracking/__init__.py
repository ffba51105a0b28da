"""What a training run tells: figures of its progress, its folder's curves, and advice."""
