"""Custom modules: their names, how they are built, and the checks before anything is charged."""
