"""What features alone say of classes, in public: the floor of every method, and where ClassCode begins."""
