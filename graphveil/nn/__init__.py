"""Network architectures and layers. None of them reads protected data by itself."""
