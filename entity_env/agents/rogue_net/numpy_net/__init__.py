"""The network in numpy, for acting without torch: equivalent results, but no gradients."""
