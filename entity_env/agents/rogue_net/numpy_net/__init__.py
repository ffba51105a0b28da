"""The network in numpy, for shipped agents: equivalent results without torch or gradients."""
