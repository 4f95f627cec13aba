"""The privacy loss of events: exact or pessimistic numbers, without words."""
