"""Training of networks: without privacy if records are public, by noisy steps if they are protected."""
