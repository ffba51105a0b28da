"""Games for one agent, and a scripted player for each."""
