"""Modules that users bring: how they are named and built, and what is refused before anything is booked."""
