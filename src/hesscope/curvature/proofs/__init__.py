"""What must hold before a number is right: tried on the user's own network and data."""
