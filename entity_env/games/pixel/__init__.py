"""Games that are known by their screen alone: so far the reward from pixels, in `core`."""
