"""Laws with a name, and which of them explains a measured spectrum."""
