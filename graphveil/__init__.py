"""Learn from graphs whose edges, nodes or attributes are secret, under differential privacy."""
