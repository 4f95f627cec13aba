"""How networks learn: in the clear where records are public, by noisy steps where they are protected."""
