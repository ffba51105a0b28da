"""`clients/c/entity_agent.h`, which runs networks in C."""
