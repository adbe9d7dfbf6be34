"""Callbacks for other people's trainers; each is imported by its own name, as it needs that package."""
