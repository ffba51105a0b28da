"""Games for several agents, and a scripted player for each."""
