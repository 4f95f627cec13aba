"""Fresh releases, where an operator allowed a budget for them: booked before they are computed, and kept."""
